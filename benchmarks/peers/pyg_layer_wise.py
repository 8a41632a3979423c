"""PyG layer by layer, batch by batch, as ``BasicGNN.inference`` over a ``NeighborLoader`` does.

A batch is a run of target nodes with all their in-edges, cut from the CSR. PyG's loader finds
it with pyg-lib or torch-sparse, which have no wheels for current torch; with all neighbours
and targets in order there is nothing to sample, so the cut here is a slice and costs less than
theirs. The layers are PyG's ``GCNConv`` and ``GATConv``, unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.work import HEADS, LAYERS, SLOPE, Work, factors

work = Work.from_arguments(__doc__)
with work.stage("import"):
    import warnings

    warnings.filterwarnings("ignore", message="Sparse CSR")
    import pyarrow.parquet  # noqa: F401  # counted as imports; used by reading
    import safetensors.torch  # noqa: F401
    import torch
    from scipy.sparse import _sparsetools
    from torch_geometric.nn import GATConv, SimpleConv

BATCH = {"gcn": 1 << 18, "gat": 1 << 16}
"""Target nodes a batch; the best of those tried."""


class Gcn(torch.nn.Module):
    """Aggregate, then multiply: one sparse product per batch, with the whole graph's norm."""

    def __init__(self, weights: dict[str, Any]) -> None:
        super().__init__()
        self.gather = SimpleConv(aggr="sum")
        self.weight, self.bias = weights["weight"], weights["bias"]

    def forward(self, x: Any, matrix: Any, first: int, last: int) -> Any:
        return torch.addmm(self.bias, self.gather((x, x[first:last]), matrix), self.weight)


class Gat(torch.nn.Module):
    """``GATConv`` on the batch's edges; sources are the nodes that the batch reads."""

    def __init__(self, weights: dict[str, Any]) -> None:
        super().__init__()
        out, width = weights["fc.weight"].shape
        self.conv = GATConv(width, out // HEADS, HEADS, negative_slope=SLOPE, add_self_loops=False)
        names = {
            "lin.weight": "fc.weight",
            "att_src": "attn_l",
            "att_dst": "attn_r",
            "bias": "bias",
        }
        self.conv.load_state_dict({ours: weights[theirs] for ours, theirs in names.items()})

    def forward(self, x: Any, edges: Any, first: int, last: int) -> Any:
        nodes, ends = edges
        return self.conv((x[nodes], x[first:last]), ends)


def batches(indptr: Any, columns: Any, values: Any) -> list[tuple[int, int, Any]]:
    """(first target, one past the last, what the layer reads); made once, used by all layers."""
    found = []
    slots = torch.empty(work.nodes, dtype=torch.int64)
    for first in range(0, work.nodes, BATCH[work.conv]):
        last = min(first + BATCH[work.conv], work.nodes)
        start, stop = int(indptr[first]), int(indptr[last])
        rows, sources = indptr[first : last + 1] - start, columns[start:stop]
        if work.conv == "gcn":
            given: Any = torch.sparse_csr_tensor(
                rows, sources, values[start:stop], (last - first, work.nodes)
            )
        else:
            present = torch.zeros(work.nodes, dtype=torch.bool)
            present[sources] = True
            nodes = present.nonzero().squeeze(1)
            slots[nodes] = torch.arange(len(nodes))
            targets = torch.repeat_interleave(torch.arange(last - first), rows.diff())
            given = nodes, torch.stack([slots[sources], targets])
        found.append((first, last, given))
    return found


def main() -> None:
    """Read, build, infer, write."""
    with work.stage("read_edges"):
        source, destination = work.read_edges()
    with work.stage("build"):
        count, nodes = len(source), work.nodes
        indptr, columns = np.empty(nodes + 1, np.int32), np.empty(count, np.int32)
        out_degree = torch.bincount(torch.from_numpy(source), minlength=nodes)
        in_degree = torch.bincount(torch.from_numpy(destination), minlength=nodes)
        values = np.empty(count, np.float32)
        right, left = (f.numpy() for f in factors(in_degree, out_degree))
        _sparsetools.coo_tocsr(
            nodes,
            nodes,
            count,
            destination,
            source,
            left[source] * right[destination],
            indptr,
            columns,
            values,
        )
        del source, destination
        # PyG's convolutions index with 64 bits; torch's sparse product takes either.
        wide = columns if work.conv == "gcn" else columns.astype(np.int64)
        cut = batches(*(torch.from_numpy(a) for a in (indptr, wide, values)))
    with work.stage("read_features"):
        h = torch.from_numpy(work.read_features())
    with work.stage("infer"), torch.no_grad():
        weights = work.weights()
        for number in range(LAYERS):
            prefix = f"layers.{number}."
            own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
            layer = (Gcn if work.conv == "gcn" else Gat)(own).eval()
            out = torch.empty_like(h)
            for first, last, given in cut:
                rows = layer(h, given, first, last)
                out[first:last] = rows.relu_() if number < LAYERS - 1 else rows
            h = out
    work.finish(h.numpy())


main()
