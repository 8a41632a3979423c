"""PyG's convolutions that change single rows or edges by numbers of edges, over all of them.

Each function takes the place of ``forward`` while a module is recorded; the proof holds it to the
module's own.
"""

from __future__ import annotations

from typing import Any

import torch

from embertide.tracing.pyg.filters import edges_given
from embertide.tracing.pyg.propagation import Propagate
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.user_code import here, refuse


def cluster_gcn(recording: Recording, m: Any, x: Any, edge_index: Any) -> Any:
    """ClusterGCNConv: a mean with one self-loop at each node, whose share is larger."""
    if not m.add_self_loops:
        raise refuse(
            here(),
            f"{type(m).__name__} with add_self_loops=False is given a self-loop at each node, which"
            " depends on the graph; make it with add_self_loops=True, which gives the same",
        )
    passed = edges_given(recording, m, edge_index)
    edges = recording.seen(passed.view.after("remove_self_loops").after("add_self_loops"))
    share = 1.0 / edges.degree("in").clamp(min=1.0).view(-1, 1)
    total = edges.aggregate(edges.source(x), "sum", recording.scopes.current())
    return m.lin_out(total * share + x * (share * m.diag_lambda)) + m.lin_root(x)


def molecular(recording: Recording, m: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
    """MFConv: a different matrix for each number of in-edges; each is applied to all rows."""
    own = x if isinstance(x, tuple) else (x, x)
    edges = edges_given(recording, m, edge_index)
    degree = edges.degree("in").clamp(max=float(m.max_degree)).view(-1, 1)
    h = Propagate(m, recording)(edge_index, x=own, size=size)
    total: Any = 0
    for at, (of_neighbors, of_node) in enumerate(zip(m.lins_l, m.lins_r, strict=True)):
        out = of_neighbors(h) if own[1] is None else of_neighbors(h) + of_node(own[1])
        total = total + torch.where(degree == at, out, 0.0)
    return total


def grouped_linear(m: Any, src: Any) -> Any:
    """DNAConv's Linear of groups of columns: one matrix with zeros between the groups."""
    out = src @ torch.block_diag(*m.weight)
    return out if m.bias is None else out + m.bias
