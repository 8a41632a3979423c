"""The lean script: scipy's counting sort to CSR, then torch's sparse products.

GAT goes head by head: scores from two gathers, exponentials against a bound of each row's
maximum (leaky_relu rises, so the largest source score bounds every edge of a row), sums of
rows by a product with ones, and a division at the end.
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
    import torch.nn.functional as F
    from scipy.sparse import _sparsetools


class Graph:
    """The CSR of in-edges, and what is computed from it once."""

    def __init__(self, source: Any, destination: Any, nodes: int) -> None:
        count = len(source)
        self.nodes = nodes
        indptr, columns = np.empty(nodes + 1, np.int32), np.empty(count, np.int32)
        values = np.empty(count, np.int8)  # the routine sorts values too: of one byte, unused
        _sparsetools.coo_tocsr(
            nodes, nodes, count, destination, source, values, indptr, columns, np.empty_like(values)
        )
        self.indptr, self.columns = torch.from_numpy(indptr), torch.from_numpy(columns)
        self.in_degree = self.indptr.diff()
        self.out_degree = torch.bincount(torch.from_numpy(source), minlength=nodes)
        self.rows = torch.repeat_interleave(
            torch.arange(nodes, dtype=torch.int32), self.in_degree, output_size=count
        )

    def matrix(self, values: Any) -> Any:
        """A sparse tensor of these values, [nnz]."""
        size = (self.nodes, self.nodes)
        return torch.sparse_csr_tensor(
            self.indptr, self.columns, values, size, check_invariants=False
        )


def gcn(graph: Graph, h: Any, weights: dict[str, Any]) -> Any:
    right, left = factors(graph.in_degree, graph.out_degree)
    matrix = graph.matrix(
        left.index_select(0, graph.columns).mul_(right.index_select(0, graph.rows))
    )
    for layer in range(LAYERS):
        bias, weight = (weights[f"layers.{layer}.{name}"] for name in ("bias", "weight"))
        h = torch.addmm(bias, matrix @ h, weight)
        if layer < LAYERS - 1:
            h.relu_()
    return h


def gat(graph: Graph, h: Any, weights: dict[str, Any]) -> Any:
    ones = torch.ones(graph.nodes, 1)
    for layer in range(LAYERS):
        own = {name: weights[f"layers.{layer}.{name}"] for name in ("attn_l", "attn_r", "bias")}
        z = h @ weights[f"layers.{layer}.fc.weight"].T
        width = z.shape[1] // HEADS
        # One product for all heads: a column of the matrix has one head's numbers.
        sources, targets = (
            (z @ torch.block_diag(*own[end].view(HEADS, width, 1))).T.contiguous()
            for end in ("attn_l", "attn_r")
        )
        h = torch.empty_like(z)
        for head in range(HEADS):
            columns = slice(head * width, (head + 1) * width)
            bound = F.leaky_relu(sources[head].max() + targets[head], SLOPE)
            values = sources[head].index_select(0, graph.columns)
            values.add_(targets[head].index_select(0, graph.rows))
            values = F.leaky_relu_(values, SLOPE).sub_(bound.index_select(0, graph.rows)).exp_()
            matrix = graph.matrix(values)
            h[:, columns] = (matrix @ z[:, columns]).div_(matrix @ ones)
        h += own["bias"]
        if layer < LAYERS - 1:
            h.relu_()
    return h


def main() -> None:
    """Read, build, infer, write."""
    with work.stage("read_edges"):
        source, destination = work.read_edges()
    with work.stage("build"):
        graph = Graph(source, destination, work.nodes)
        del source, destination
    with work.stage("read_features"):
        h = torch.from_numpy(work.read_features())
    with work.stage("infer"), torch.no_grad():
        h = (gcn if work.conv == "gcn" else gat)(graph, h, work.weights())
    work.finish(h.numpy())


main()
