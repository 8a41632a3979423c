"""The one place where the benchmarks call Embertide's kernels, and their rivals beside them.

Each entry of :data:`KERNELS` prepares its inputs from a graph and gives, as plain calls, ours
and what DGL, torch or another library offers for the same; all of them give the same result.
What a kernel is called is mended here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.nn.functional import leaky_relu

from benchmarks.dataset import rmat
from embertide.grid import Grid
from embertide.kernels import native, nodewise
from embertide.kernels.block import Block, max_rows, no_weights, set_rows
from embertide.kernels.csr import Csr, build_csr, pack
from embertide.kernels.cut import cut_by_group
from embertide.models.dgl_interop import load_dgl
from embertide.primitives import attention
from embertide.primitives.exchange import Exchange
from embertide.primitives.idmap import HashedIds
from embertide.primitives.sources import local_sources
from embertide.spec.grid import GridShape
from embertide.stages.sample import sample_layer
from embertide.telemetry.recorder import NullRecorder

HEADS, SLOPE, FANOUT = 4, 0.2, 50
PAIR_SCALES = 2
"""Scores of pairs are measured on a graph 2^2 times smaller: rivals hold E x D numbers."""


@dataclass(frozen=True)
class Calls:
    """One kernel: what it must move at least, what bounds it, and how to call it.

    Attributes:
        bytes: the least that is read and written.
        items: what a rate is counted in, by name, such as edges.
        limit: the machine's limit that bounds it: ``copy`` or ``gather_512_bytes``.
        ours: the call.
        rivals: others' calls for the same result.
        same: whether two results are equal; None where there is nothing to compare.
    """

    bytes: float
    items: tuple[str, int]
    limit: str
    ours: Callable[[], Any]
    rivals: dict[str, Callable[[], Any]]
    same: Callable[[Any, Any], bool] | None = None


class Bench:
    """A graph in all forms that kernels and rivals want."""

    def __init__(self, scale: int, width: int) -> None:
        self.scale, self.width, self.nodes = scale, width, 1 << scale
        self.source, self.destination = rmat(scale, 20 << scale)
        self.x = torch.randn(self.nodes, width, generator=torch.Generator().manual_seed(1))
        self.dgl: Any = load_dgl()

    @cached_property
    def csr(self) -> Csr:
        """The whole graph's in-edges."""
        keys = pack(self.destination, self.source, self.nodes)
        return build_csr(keys, None, self.nodes, self.nodes, first=0)

    @cached_property
    def block(self) -> Block:
        """All non-zeros over all nodes."""
        return Block(None, self.csr.indptr, self.csr.cols)

    @cached_property
    def graph(self) -> Any:
        """DGL's graph, edges numbered as in the CSR."""
        indptr = self.csr.indptr.int()
        unnumbered = torch.empty(0, dtype=torch.int32)
        graph = self.dgl.graph(
            ("csc", (indptr, self.csr.cols, unnumbered)), num_nodes=self.nodes, idtype=torch.int32
        )
        graph.create_formats_()
        return graph

    @cached_property
    def matrix(self) -> torch.Tensor:
        """torch's sparse matrix of ones."""
        ones = torch.ones(self.csr.nnz)
        size = (self.nodes, self.nodes)
        return torch.sparse_csr_tensor(self.csr.indptr.int(), self.csr.cols, ones, size)

    def exchange(self) -> Exchange:
        """Of a single worker."""
        return Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())


def close(a: Any, b: Any) -> bool:
    """Equal to float32 rounding of sums."""
    return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-3))


def spmm_sum(bench: Bench) -> Calls:
    out = torch.empty_like(bench.x)

    def ours() -> torch.Tensor:
        set_rows(out, bench.block, bench.x, no_weights)
        return out

    graph, matrix, x = bench.graph, bench.matrix, bench.x
    return Calls(
        4.0 * bench.width * bench.csr.nnz,
        ("edges", bench.csr.nnz),
        "gather_512_bytes",
        ours,
        {"dgl": lambda: bench.dgl.ops.copy_u_sum(graph, x), "torch": lambda: matrix @ x},
        close,
    )


def spmm_max(bench: Bench) -> Calls:
    out = torch.empty_like(bench.x)

    def ours() -> torch.Tensor:
        out.fill_(float("-inf"))
        max_rows(out, bench.block, bench.x, no_weights)
        return out.masked_fill_(out == float("-inf"), 0.0)

    return Calls(
        4.0 * bench.width * bench.csr.nnz,
        ("edges", bench.csr.nnz),
        "gather_512_bytes",
        ours,
        {"dgl": lambda: bench.dgl.ops.copy_u_max(bench.graph, bench.x)},
        lambda a, b: close(a, b.nan_to_num(neginf=0.0)),
    )


def gat(bench: Bench) -> Calls:
    """Scores, softmax and weighted sum of one layer, products left out."""
    generator = torch.Generator().manual_seed(2)
    left, right = (torch.randn(bench.nodes, HEADS, generator=generator) for _ in range(2))
    exchange = bench.exchange()
    channel = exchange.channel("graph", "gat")
    sources = local_sources(bench.csr, channel.axis, channel.device)
    by_head = bench.x.view(bench.nodes, HEADS, -1)

    def ours() -> torch.Tensor:
        scores = attention.AdditiveScores(sources, [left], right, SLOPE)
        options = {"heads": HEADS, "width": bench.width, "depth": 1, "weighted": False}
        out = attention.attend(channel, sources, bench.x, scores, **options)
        attention.divide_heads(
            out, scores.total, attention.head_spans(HEADS, bench.width, 0, bench.width)
        )
        return out

    def dgl() -> torch.Tensor:
        ops = bench.dgl.ops
        scores = leaky_relu(ops.u_add_v(bench.graph, left, right), SLOPE).unsqueeze(2)
        return ops.u_mul_e_sum(bench.graph, by_head, ops.edge_softmax(bench.graph, scores)).flatten(
            1
        )

    size = (4.0 * bench.width + 4 * HEADS) * bench.csr.nnz
    return Calls(size, ("edges", bench.csr.nnz), "gather_512_bytes", ours, {"dgl": dgl}, close)


def gatv2(bench: Bench) -> Calls:
    """Scores of pairs and their softmax."""
    bench = Bench(max(4, bench.scale - PAIR_SCALES), bench.width)
    generator = torch.Generator().manual_seed(2)
    vector = torch.randn(HEADS, bench.width // HEADS, generator=generator)
    queries = torch.randn(bench.nodes, bench.width, generator=generator)
    channel = bench.exchange().channel("world", "gatv2")
    sources = local_sources(bench.csr, channel.axis, channel.device)
    lengths = bench.csr.indptr.diff()

    def pair(key: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return nodewise.head_dot(torch.nn.functional.leaky_relu_(key.add_(query), SLOPE), vector)

    def ours() -> torch.Tensor:
        scores = attention.sddmm(channel, sources, bench.x, queries, pair, heads=HEADS, depth=1)
        return attention.row_softmax(scores, lengths)

    def dgl() -> torch.Tensor:
        ops = bench.dgl.ops
        both = leaky_relu(ops.u_add_v(bench.graph, bench.x, queries), SLOPE)
        scores = (both.view(len(both), HEADS, -1) * vector).sum(2)
        return ops.edge_softmax(bench.graph, scores)

    size = 4.0 * bench.width * bench.csr.nnz
    return Calls(size, ("edges", bench.csr.nnz), "gather_512_bytes", ours, {"dgl": dgl}, close)


def csr(bench: Bench) -> Calls:
    """Packed edges to CSR: 8 bytes in, 4 out, and the passes of one sort."""
    keys = pack(bench.destination, bench.source, bench.nodes)

    def ours() -> torch.Tensor:
        return build_csr(keys.copy(), None, bench.nodes, bench.nodes, first=0).cols

    ends = tuple(torch.from_numpy(e.astype(np.int32)) for e in (bench.source, bench.destination))

    def dgl() -> torch.Tensor:
        graph = bench.dgl.graph(ends, num_nodes=bench.nodes, idtype=torch.int32)
        return graph.adj_tensors("csc")[1]

    size = 28.0 * len(keys)
    return Calls(size, ("edges", len(keys)), "copy", ours, {"dgl": dgl})


def ids_int64(bench: Bench) -> Calls:
    names = np.random.default_rng(3).integers(0, 2**62, bench.nodes)
    return _ids(bench, names, "int64")


def ids_string(bench: Bench) -> Calls:
    numbers = np.random.default_rng(3).integers(0, 2**62, bench.nodes)
    return _ids(bench, pa.array(numbers).cast(pa.string()).cast(pa.large_string()), "string")


def _ids(bench: Bench, names: Any, kind: str) -> Calls:
    """Both ends of a fifth of the edges, looked up among all nodes."""
    picked = bench.source[: 4 * bench.nodes]
    asked = names[picked] if kind == "int64" else names.take(pa.array(picked))
    table = HashedIds(bench.exchange(), [names], kind, "benchmark")
    known = pa.array(names) if kind == "int64" else names

    def arrow() -> Any:
        return pc.index_in(pa.array(asked) if kind == "int64" else asked, known)

    size = 16.0 * len(picked)
    return Calls(size, ("ids", len(picked)), "copy", lambda: table.find(asked), {"arrow": arrow})


def cut(bench: Bench) -> Calls:
    """A partition's non-zeros into the local block and eight groups."""
    half, groups = bench.nodes // 2, 8
    table = torch.arange(bench.nodes, dtype=torch.int32) - half
    table[:half] = -1 - torch.arange(half, dtype=torch.int32)

    def ours() -> Any:
        return cut_by_group(bench.csr, table, -(-half // groups), half, edges=False)

    return Calls(20.0 * bench.csr.nnz, ("edges", bench.csr.nnz), "copy", ours, {})


def sampling(bench: Bench) -> Calls:
    """Fifty in-neighbours of every node, without replacement."""
    keys = np.arange(bench.nodes).astype(np.uint64)
    nodes = torch.arange(bench.nodes, dtype=torch.int32)
    graph = bench.graph
    kept = int(bench.csr.indptr.diff().clamp(max=FANOUT).sum())
    return Calls(
        8.0 * kept,
        ("edges", kept),
        "copy",
        lambda: sample_layer(bench.csr, keys, FANOUT, 0, 0),
        {"dgl": lambda: bench.dgl.sampling.sample_neighbors(graph, nodes, FANOUT)},
    )


def gather(bench: Bench) -> Calls:
    """Rows copied into an exchange buffer, in random order."""
    rows = torch.from_numpy(np.random.default_rng(3).permutation(bench.nodes))
    out = torch.empty_like(bench.x)

    def ours() -> torch.Tensor:
        if native.lib is None:
            return torch.index_select(bench.x, 0, rows, out=out)
        native.lib.gather_rows(out.numpy(), bench.x.numpy(), rows.numpy())
        return out

    def plain() -> torch.Tensor:
        return bench.x.index_select(0, rows)

    size = 8.0 * bench.width * bench.nodes
    return Calls(size, ("rows", bench.nodes), "copy", ours, {"torch": plain}, close)


KERNELS: dict[str, Callable[[Bench], Calls]] = {
    "spmm_sum": spmm_sum,
    "spmm_max": spmm_max,
    "gat": gat,
    "gatv2": gatv2,
    "csr": csr,
    "ids_int64": ids_int64,
    "ids_string": ids_string,
    "cut": cut,
    "sampling": sampling,
    "gather": gather,
}
