"""Layer by layer with features and layers in numpy's memmaps, as DGI does it out of core (4.3).

    python -m benchmarks.baselines.memmap_layers --data FOLDER --conv gcn --out FILE.npy
        --memory BYTES --scratch FOLDER [--group FILE]

The CSR is in memory. It is built before the process enters the memory group of ``--group``, so that
neither edges nor graph count in its limit: sorted in memory, they alone may take more. A layer
takes rows in batches of consecutive targets, each with as many as keep its unique sources within
half of the memory; their rows are gathered from the layer before, and torch's sparse products sum
them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.work import HEADS, LAYERS, SLOPE, Work, factors

EDGES_A_SOURCE = 3
"""Edges of a batch for each source that fits: what torch makes of an edge is in memory, too."""
_ROWS = 1 << 18
"""Of features that are put in order at a time."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", type=int, required=True, help="bytes, half of them for sources")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for the memmaps")
    parser.add_argument("--group", type=Path, help="cgroup.procs of the group to enter")


work = Work.from_arguments(__doc__, _add_options)
with work.stage("import"):
    import warnings

    warnings.filterwarnings("ignore", message="Sparse CSR")
    import pyarrow.parquet  # noqa: F401  # counted as imports; used by reading
    import safetensors.torch  # noqa: F401
    import torch
    import torch.nn.functional as F
    from scipy.sparse import _sparsetools


class Batch:
    """Some consecutive targets, their in-edges and the rows of their unique sources.

    Attributes:
        first, last: the targets.
        nodes: [u] the sources.
        x: [u, D] their rows.
        columns: [e] the source of each edge, by its place in ``nodes``.
        rows: [e] the target of each edge, counted from the first.
    """

    def __init__(self, graph: Graph, first: int, last: int, nodes: Any, h: Any) -> None:
        self.first, self.last, self.nodes = first, last, nodes
        self._graph, self._h = graph, h
        self.x = torch.from_numpy(h[nodes])
        graph.place[nodes] = np.arange(len(nodes), dtype=np.int32)
        low, high = graph.ends[first], graph.ends[last]
        self.columns = torch.from_numpy(graph.place[graph.columns[low:high]])
        self._ends = torch.from_numpy(graph.ends[first : last + 1] - low)
        targets = torch.arange(last - first, dtype=torch.int32)
        self.rows = torch.repeat_interleave(targets, self._ends.diff(), output_size=high - low)

    def own(self) -> Any:
        """[last - first, D] the rows of the targets."""
        return torch.from_numpy(self._h[self.first : self.last])

    def factors(self) -> tuple[Any, Any]:
        """R of the targets and C of the sources."""
        graph = self._graph
        return factors(graph.in_degree[self.first : self.last], graph.out_degree[self.nodes])

    def matrix(self, values: Any) -> Any:
        """A sparse tensor of these values, [e]."""
        size = (self.last - self.first, len(self.nodes))
        return torch.sparse_csr_tensor(
            self._ends, self.columns, values, size, check_invariants=False
        )


class Graph:
    """The CSR of in-edges in memory."""

    def __init__(self, source: Any, destination: Any, nodes: int) -> None:
        count = len(source)
        self.nodes = nodes
        self.ends, self.columns = np.empty(nodes + 1, np.int32), np.empty(count, np.int32)
        values = np.empty(count, np.int8)  # the routine sorts values too: of one byte, unused
        _sparsetools.coo_tocsr(
            nodes, nodes, count, destination, source, values,
            self.ends, self.columns, np.empty_like(values),
        )  # fmt: skip
        self.in_degree = torch.from_numpy(np.diff(self.ends))
        self.out_degree = torch.bincount(torch.from_numpy(source), minlength=nodes)
        self.place = np.empty(nodes, np.int32)
        self._seen = np.zeros(nodes, bool)

    def batches(self, h: Any, most: int) -> Iterator[Batch]:
        """All targets, with at most ``most`` unique sources at a time, or those of one target."""
        first = 0
        while first < self.nodes:
            edges = self.ends[first] + EDGES_A_SOURCE * most
            last = int(np.searchsorted(self.ends, edges, "right")) - 1
            last = min(self.nodes, max(first + 1, last))
            nodes = self._sources(first, last)
            while len(nodes) > most and last > first + 1:
                last = first + (last - first) // 2
                nodes = self._sources(first, last)
            yield Batch(self, first, last, nodes, h)
            first = last

    def _sources(self, first: int, last: int) -> Any:
        self._seen[:] = False
        self._seen[self.columns[self.ends[first] : self.ends[last]]] = True
        return np.flatnonzero(self._seen)


def gcn(batch: Batch, layer: int, weights: dict[str, Any]) -> Any:
    """[last - first, D'] of a batch."""
    right, left = batch.factors()
    values = left.index_select(0, batch.columns).mul_(right.index_select(0, batch.rows))
    bias, weight = (weights[f"layers.{layer}.{name}"] for name in ("bias", "weight"))
    return torch.addmm(bias, batch.matrix(values) @ batch.x, weight)


def gat(batch: Batch, layer: int, weights: dict[str, Any]) -> Any:
    """[last - first, D'] of a batch, head by head."""
    own = {name: weights[f"layers.{layer}.{name}"] for name in ("attn_l", "attn_r", "bias")}
    weight = weights[f"layers.{layer}.fc.weight"].T
    z, targets_z = batch.x @ weight, batch.own() @ weight
    width = z.shape[1] // HEADS
    sources, targets = (
        (rows @ torch.block_diag(*own[end].view(HEADS, width, 1))).T.contiguous()
        for end, rows in (("attn_l", z), ("attn_r", targets_z))
    )
    out, ones = torch.empty_like(targets_z), torch.ones(len(z), 1)
    for head in range(HEADS):
        columns = slice(head * width, (head + 1) * width)
        bound = F.leaky_relu(sources[head].max() + targets[head], SLOPE)
        values = sources[head].index_select(0, batch.columns)
        values.add_(targets[head].index_select(0, batch.rows))
        values = F.leaky_relu_(values, SLOPE).sub_(bound.index_select(0, batch.rows)).exp_()
        matrix = batch.matrix(values)
        out[:, columns] = (matrix @ z[:, columns]).div_(matrix @ ones)
    return out.add_(own["bias"])


def features_in_order(out: Any) -> None:
    """Fill a memmap from files whose rows are in no order, some rows of a file at a time."""
    for path in sorted((work.data / "features" / "x").iterdir()):
        ids = np.load(path.parent.parent / "ids" / path.name)
        rows = np.load(path, mmap_mode="r")
        for at in range(0, len(ids), _ROWS):
            # In the order of the nodes, so that the memmap is written forwards.
            order = at + np.argsort(ids[at : at + _ROWS])
            out[ids[order]] = rows[order]


def main() -> None:
    """Read, build, infer, write."""
    with work.stage("read_edges"):
        source, destination = work.read_edges()
    with work.stage("build"):
        graph = Graph(source, destination, work.nodes)
        del source, destination
    if work.given.group:
        work.given.group.write_text(str(os.getpid()))
    most = max(1, work.given.memory // 2 // (4 * work.width))
    compute = gcn if work.conv == "gcn" else gat
    with tempfile.TemporaryDirectory(dir=work.given.scratch) as folder:

        def layer_file(number: int) -> Any:
            path, shape = Path(folder) / f"h{number}", (work.nodes, work.width)
            return np.memmap(path, np.float32, "w+", shape=shape)

        with work.stage("read_features"):
            h = layer_file(0)
            features_in_order(h)
        with work.stage("infer"), torch.no_grad():
            weights = work.weights()
            for layer in range(LAYERS):
                out = layer_file(layer + 1)
                for batch in graph.batches(h, most):
                    rows = compute(batch, layer, weights)
                    rows = rows.relu_() if layer < LAYERS - 1 else rows
                    out[batch.first : batch.last] = rows.numpy()
                h = out
        work.finish(h)


main()
