"""DGL's EdgeWeightNorm and EGATConv, whose own code asks the graph for its degrees.

Each function takes the place of ``forward`` while a module is recorded; the proof compares it with
the module's own.
"""

from __future__ import annotations

from typing import Any

from torch.nn.functional import leaky_relu

from embertide.tracing.dgl.graph import RecordingGraph
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import is_weight
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse


def edge_weight_norm(recording: Recording, m: Any, graph: Any, edge_weight: Any) -> Any:
    """DGL's EdgeWeightNorm: weights divided by degrees, which are sums of weights."""
    if not isinstance(edge_weight, Traced) or not is_weight(edge_weight.node):
        raise refuse(
            here(),
            f"{type(m).__name__} is given weights that are not the graph's own; give it those",
        )
    edges, weight = recording.edges[graph.relation], edge_weight.flatten()
    if m._norm == "none":
        return weight
    into = edges.degree("weight", weight) + m._eps
    if m._norm == "right":
        return edges.target(1.0 / into) * weight
    out_of = edges.degree("out_weight", weight) + m._eps
    return edges.source(out_of.pow(-0.5)) * edges.target(into.pow(-0.5)) * weight


def egat(
    recording: Recording,
    m: Any,
    graph: Any,
    nfeats: Any,
    efeats: Any,
    edge_weight: Any = None,
    get_attention: bool = False,
) -> Any:
    """DGL's EGATConv, but for its look at in-degrees: [N, H, F], [E, H, F'] and its attention."""
    if not isinstance(graph, RecordingGraph):
        return type(m).forward(m, graph, nfeats, efeats, edge_weight, get_attention)
    source, target = nfeats if isinstance(nfeats, tuple) else (nfeats, nfeats)
    edges, heads = recording.edges[graph.relation], m._num_heads
    own = edges.source(m.fc_ni(source)) + edges.target(m.fc_nj(target)) + m.fc_fij(efeats)
    own = own if m.bias is None else own + m.bias
    own = leaky_relu(own).view(-1, heads, m._out_edge_feats)
    share: Any = edges.softmax((own * m.attn).sum(dim=-1).unsqueeze(-1))
    if edge_weight is not None:
        share = share * edge_weight.view(-1, 1, 1)
    values = m.fc_node_src(source).view(-1, heads, m._out_node_feats)
    scope = recording.scopes.current()
    out = edges.aggregate(edges.source(values) * share, "sum", scope)
    return (out, own, share) if get_attention else (out, own)
