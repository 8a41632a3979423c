"""The one place where the benchmarks call Embertide's kernels, and their rivals beside them.

Each entry of :data:`KERNELS` prepares its inputs from a graph and gives, as plain calls, ours
and what DGL, torch or another library offers for the same; all of them give the same result.
What a kernel is called is mended here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.nn.functional import leaky_relu

from benchmarks.edges import sort_edges
from benchmarks.kernel_inputs import Bench, Calls, close
from embertide.graph.sources import range_places, share_rounds
from embertide.kernels.attention import add_additive, add_pairs
from embertide.kernels.cut import cut_by_group
from embertide.kernels.epilogue import NOTHING, Epilogue, Factors
from embertide.kernels.heads import HeadColumns, PairScore, RowSums
from embertide.kernels.ids import IdTable, hash_ids, sort_words
from embertide.kernels.node_set import NodeSet
from embertide.kernels.rows import gather_rows, scatter_rows
from embertide.kernels.sample import sample_rows
from embertide.kernels.spmm import Reduce, multiply, reduce_linear, reduce_rows

HEADS, SLOPE, FANOUT = 4, 0.2, 50
PAIR_SCALES = 2
"""Scores of pairs are measured on a graph 2^2 times smaller: rivals hold E x D numbers."""

RELU = Epilogue(activation="relu")


def spmm_sum(bench: Bench) -> Calls:
    graph, matrix, x = bench.graph, bench.matrix, bench.x
    rivals = {"dgl": lambda: bench.dgl.ops.copy_u_sum(graph, x), "torch": lambda: matrix @ x}
    return _spmm(bench, "sum", rivals, lambda a, b: close_or_nearer(bench, a, b))


def close_or_nearer(bench: Bench, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """As :func:`close`; where a long row's values cancel out, ours is nearer to float64's sum."""
    differ = ~torch.isclose(ours, theirs, rtol=1e-3, atol=1e-3).all(1)
    for row in differ.nonzero()[:, 0].tolist():
        start, stop = bench.csr.indptr[row : row + 2].tolist()
        exact = bench.x[bench.csr.cols[start:stop].long()].double().sum(0)
        off = [float((sums[row] - exact).abs().max()) for sums in (ours, theirs)]
        if off[0] > off[1] or off[0] > 1e-5 * exact.abs().max():
            return False
    return True


def spmm_max(bench: Bench) -> Calls:
    graph, x = bench.graph, bench.x
    return _spmm(
        bench,
        "max",
        {"dgl": lambda: bench.dgl.ops.copy_u_max(graph, x)},
        lambda a, b: close(a, b.nan_to_num(neginf=0.0)),
    )


def _spmm(
    bench: Bench,
    reduce: Reduce,
    rivals: dict[str, Callable[[], Any]],
    same: Callable[[Any, Any], bool],
) -> Calls:
    out = torch.empty_like(bench.x)

    def ours() -> torch.Tensor:
        reduce_rows(out, bench.block, bench.x, Factors(), NOTHING, reduce=reduce)
        return out

    edges = bench.csr.nnz
    least = 4.0 * bench.width * edges
    return Calls(least, ("edges", edges), "gather_512_bytes", ours, rivals, same)


def spmm_linear(bench: Bench) -> Calls:
    """A layer: sums over neighbours, a product with a weight, and relu."""
    out = torch.empty_like(bench.x)
    graph, matrix, x, weight = bench.graph, bench.matrix, bench.x, bench.weight

    def ours() -> torch.Tensor:
        reduce_linear(out, bench.block, x, weight, Factors(), RELU)
        return out

    rivals = {
        "dgl": lambda: (bench.dgl.ops.copy_u_sum(graph, x) @ weight.T).relu_(),
        "torch": lambda: (matrix @ x @ weight.T).relu_(),
    }
    edges = bench.csr.nnz
    least = 4.0 * bench.width * edges
    return Calls(least, ("edges", edges), "gather_512_bytes", ours, rivals, _close_to_largest)


def _close_to_largest(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to float32 rounding of sums of sums, whose parts cancel out."""
    return bool((a - b).abs().max() <= 1e-4 * b.abs().max())


def dense(bench: Bench) -> Calls:
    """A product with a weight, and relu."""
    out, x, weight = torch.empty_like(bench.x), bench.x, bench.weight
    theirs = torch.empty_like(out)

    def ours() -> torch.Tensor:
        multiply(out, x, weight, RELU)
        return out

    rivals = {"torch": lambda: torch.mm(x, weight.T, out=theirs).relu_()}
    least = 2.0 * bench.nodes * bench.width**2
    return Calls(least, ("rows", bench.nodes), "gemm_gflops", ours, rivals, close)


def gat(bench: Bench) -> Calls:
    """Scores, softmax and weighted sum of one layer, products left out."""
    left, right = bench.random(3, HEADS), bench.random(4, HEADS)
    graph, by_head = bench.graph, bench.x.view(bench.nodes, HEADS, -1)

    def ours() -> torch.Tensor:
        sums = _sums(bench)
        add_additive(sums, bench.block, bench.x, left, right, slope=SLOPE, weighted=False)
        return sums.out

    def dgl() -> torch.Tensor:
        scores = leaky_relu(bench.dgl.ops.u_add_v(graph, left, right), SLOPE)
        return _dgl_attend(bench, graph, by_head, scores)

    least = (4.0 * bench.width + 4 * HEADS) * bench.csr.nnz
    return Calls(least, ("edges", bench.csr.nnz), "gather_512_bytes", ours, {"dgl": dgl}, close)


def gatv2(bench: Bench) -> Calls:
    """Scores of pairs, softmax and weighted sum of one layer, products left out."""
    bench = Bench(max(4, bench.scale - PAIR_SCALES), bench.width)
    vector = bench.random(3, bench.width)[0].view(HEADS, -1).contiguous()
    query, graph = bench.random(4, bench.width), bench.graph
    by_head = bench.x.view(bench.nodes, HEADS, -1)
    score = PairScore(kind="gatv2", heads=HEADS, vector=vector, slope=SLOPE)

    def ours() -> torch.Tensor:
        sums = _sums(bench)
        add_pairs(sums, bench.block, bench.x, bench.x, query, score, weighted=False)
        return sums.out

    def dgl() -> torch.Tensor:
        both = leaky_relu(bench.dgl.ops.u_add_v(graph, bench.x, query), SLOPE)
        scores = (both.view(len(both), HEADS, -1) * vector).sum(2)
        return _dgl_attend(bench, graph, by_head, scores)

    # Keys and what is summed are the same rows.
    least = 4.0 * bench.width * bench.csr.nnz
    return Calls(least, ("edges", bench.csr.nnz), "gather_512_bytes", ours, {"dgl": dgl}, close)


def _sums(bench: Bench) -> RowSums:
    heads = HeadColumns(HEADS, bench.width, 0, bench.width)
    return RowSums.begin(bench.x, bench.nodes, heads)


def _dgl_attend(bench: Bench, graph: Any, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    ops = bench.dgl.ops
    found: torch.Tensor = ops.u_mul_e_sum(graph, x, ops.edge_softmax(graph, scores.unsqueeze(2)))
    return found.flatten(1)


def csr(bench: Bench) -> Calls:
    """Edges of int32 ids to CSR: 8 bytes in, 4 out, and one pass in words of 8."""
    ends = (bench.source.astype(np.int32), bench.destination.astype(np.int32))
    tensors = tuple(map(torch.from_numpy, ends))

    def ours() -> torch.Tensor:
        return sort_edges(*ends, 0, bench.nodes, bench.nodes).cols

    def dgl() -> torch.Tensor:
        graph = bench.dgl.graph(tensors, num_nodes=bench.nodes, idtype=torch.int32)
        columns: torch.Tensor = graph.adj_tensors("csc")[1]
        return columns

    least = 28.0 * len(ends[0])
    return Calls(least, ("edges", len(ends[0])), "copy", ours, {"dgl": dgl})


def ids_int64(bench: Bench) -> Calls:
    names = np.random.default_rng(3).integers(0, 2**62, bench.nodes)
    return _ids(names, names[bench.source[: 4 * bench.nodes]], pa.array)


def ids_string(bench: Bench) -> Calls:
    numbers = np.random.default_rng(3).integers(0, 2**62, bench.nodes)
    names = pa.array(numbers).cast(pa.string()).cast(pa.large_string())
    return _ids(names, names.take(pa.array(bench.source[: 4 * bench.nodes])), lambda ids: ids)


def _ids(names: Any, asked: Any, arrow: Callable[[Any], Any]) -> Calls:
    """A table of all nodes' ids is made, and a fifth of the edges' sources are looked up."""

    def ours() -> Any:
        words = hash_ids(names)
        return IdTable(sort_words([words], words.shape[1])[0]).find(asked, 0)

    rivals = {"arrow": lambda: pc.index_in(arrow(asked), arrow(names))}
    least = float(names.nbytes + asked.nbytes + 8 * len(asked))
    items = ("ids", len(names) + len(asked))

    def same(found: Any, theirs: Any) -> bool:
        return bool((found >= 0).all()) and theirs.null_count == 0

    return Calls(least, items, "copy", ours, rivals, same)


def cut(bench: Bench) -> Calls:
    """A partition's non-zeros into the local block and eight groups."""
    bounds = np.array([0, bench.nodes // 2, bench.nodes], np.int64)
    members = NodeSet(bench.csr.cols, bench.nodes)
    remote = int(np.diff(members.ranks(bounds))[1])
    group_rows = -(-remote // 8)
    cuts, _ = share_rounds(np.array([[0, remote], [0, 0]]), group_rows, 0)
    places = range_places(members, bounds, 0, cuts, group_rows)

    def ours() -> Any:
        return cut_by_group(bench.csr, places, edges=False)

    return Calls(12.0 * bench.csr.nnz, ("edges", bench.csr.nnz), "copy", ours, {})


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
        lambda: sample_rows(bench.csr, keys, FANOUT, 0, 0),
        {"dgl": lambda: bench.dgl.sampling.sample_neighbors(graph, nodes, FANOUT)},
    )


def gather(bench: Bench) -> Calls:
    """Rows copied into an exchange buffer, in random order."""
    x, rows, out, theirs = _shuffled(bench)
    return _copied(
        bench,
        lambda: gather_rows(x, rows, out=out),
        lambda: torch.index_select(x, 0, rows, out=theirs),
    )


def scatter(bench: Bench) -> Calls:
    """Received rows put in their places, in random order."""
    x, rows, out, theirs = _shuffled(bench)

    def ours() -> torch.Tensor:
        scatter_rows(out, rows, x)
        return out

    return _copied(bench, ours, lambda: theirs.index_copy_(0, rows, x))


def _shuffled(bench: Bench) -> tuple[torch.Tensor, ...]:
    rows = torch.from_numpy(np.random.default_rng(3).permutation(bench.nodes))
    return bench.x, rows, torch.empty_like(bench.x), torch.empty_like(bench.x)


def _copied(bench: Bench, ours: Callable[[], Any], plain: Callable[[], Any]) -> Calls:
    least = 8.0 * bench.width * bench.nodes
    return Calls(least, ("rows", bench.nodes), "copy", ours, {"torch": plain}, torch.equal)


KERNELS: dict[str, Callable[[Bench], Calls]] = {
    "spmm_sum": spmm_sum,
    "spmm_max": spmm_max,
    "spmm_linear": spmm_linear,
    "dense": dense,
    "gat": gat,
    "gatv2": gatv2,
    "csr": csr,
    "ids_int64": ids_int64,
    "ids_string": ids_string,
    "cut": cut,
    "sampling": sampling,
    "gather": gather,
    "scatter": scatter,
}
