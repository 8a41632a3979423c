"""The one place where the benchmarks call Embertide's primitives.

What a primitive is called or how it takes its arguments is mended here and nowhere else;
``kernel_calls.py`` is the same for the kernels. One :class:`Engine` is one rank on one grid.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.edges import histogram_of, sort_edges
from embertide.context import RunContext
from embertide.engine.stages.csr import build_graph, choose_ranges, cut_ranges, gather_partition
from embertide.engine.stages.features.load import RawFeatures
from embertide.engine.stages.features.locate import locate_features
from embertide.engine.stages.features.nodes import LoadedNodes
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph import attention, gemm
from embertide.graph.arriving import tile_operand
from embertide.graph.directory import look_up_ascending
from embertide.graph.edge_log import EdgeChunk
from embertide.graph.edge_values import EdgeValues
from embertide.graph.exchange import Channel, Exchange
from embertide.graph.landing import land, loaded_operand
from embertide.graph.node_ids import DenseIds
from embertide.graph.shuffle import Edges
from embertide.graph.sources import (
    LoadedHolders,
    RangeHolders,
    Sources,
    find_sources,
    local_sources,
)
from embertide.graph.spmm import Reduction, spmm
from embertide.grid import AxisName, ColumnSlices, Grid, RowRanges
from embertide.kernels.attention import add_shares
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr
from embertide.kernels.epilogue import NOTHING, Factors
from embertide.kernels.heads import HeadColumns, PairScore, RowSums
from embertide.kernels.rows import gather_rows
from embertide.kernels.spilled_csr import in_memory
from embertide.kernels.spmm import reduce_rows
from embertide.layouts import Loaded
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest

DEPTH = 2
"""Groups under way while one is computed, the manifest's default."""
GROUP_BYTES = 8 << 20
"""Of a group's receive buffer, the manifest's default."""

_MANIFEST = """
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: benchmark}
spec:
  input:
    edges: [{uri: file:///unused/edges, format: parquet}]
    nodes: [{count: 1, features: {uri: file:///unused/features, format: npy}}]
  model: {uri: file:///unused/model}
  output: {uri: file:///unused/output}
"""


class Engine:
    """One rank's primitives on a P x M grid. Every method is collective on its axis.

    All bytes go through the network: links are what is compared, and ranks of one host would
    read each other's memory.
    """

    def __init__(self, rank: int, p: int, m: int) -> None:
        self.grid = Grid(GridShape.of(p, m), rank)
        self.recorder = CountingRecorder()
        self.exchange = Exchange(self.grid, torch.device("cpu"), self.recorder, direct=False)
        nowhere: Any = None  # no stage that runs here touches storage
        job = load_manifest(_MANIFEST)
        self._ctx = RunContext(job, self.exchange, nowhere, lambda _progress: None)

    # -- transport and counts --------------------------------------------------------------

    def channel(self, axis: AxisName) -> Channel:
        """Point-to-point transfers on an axis; baselines use it too, so all bytes are counted."""
        return self.exchange.channel(axis, "benchmark")

    def longest(self, count: int) -> int:
        """The largest of all ranks' numbers."""
        counts: list[int] = self.exchange.all_objects(count)
        return max(counts)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.exchange.barrier()

    def reset(self) -> None:
        """Forget what was counted."""
        self.recorder.totals.clear()

    def moved(self) -> dict[str, int]:
        """Bytes received and messages sent by this rank since the last reset."""
        totals = self.recorder.totals.values()
        return {
            "bytes": sum(entry.bytes_received for entry in totals),
            "messages": sum(entry.messages for entry in totals),
        }

    # -- who owns what ---------------------------------------------------------------------

    def cut(self, destination: npt.NDArray[np.int64], nodes: int) -> RowRanges:
        """Row ranges that balance nodes and edges."""
        histogram, shift = histogram_of(destination, nodes)
        return cut_ranges(histogram, 1 << shift, nodes, self.grid)

    def columns(self, width: int, m: int | None = None) -> slice:
        """The columns of a slice; ours by default."""
        return slice(
            *ColumnSlices(width, self.grid.feature).bounds(self.grid.m if m is None else m)
        )

    def csr(
        self,
        source: npt.NDArray[np.int64],
        destination: npt.NDArray[np.int64],
        start: int,
        stop: int,
        nodes: int,
    ) -> Csr:
        """The CSR of in-edges of nodes start..stop, from all edges; not collective."""
        if start > 0 or stop < nodes:
            mine = (destination >= start) & (destination < stop)
            source, destination = source[mine], destination[mine]
        return sort_edges(source, destination, start, stop, nodes)

    # -- local compute, the same for ours and for the baselines ----------------------------

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x @ weight.T."""
        return gemm.linear(x, weight.contiguous(), NOTHING)

    def take(self, source: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """source[rows], a copy."""
        return gather_rows(source, rows)

    def block(
        self, indptr: torch.Tensor, indices: torch.Tensor, rows: torch.Tensor | None = None
    ) -> Block:
        """Non-zeros that products are taken with; ``rows`` are int32 rows of the result."""
        return Block(rows, indptr, indices)

    def add_product(self, out: torch.Tensor, block: Block, source: torch.Tensor) -> None:
        """out[i] += sum of source[j] over row i of the block."""
        reduce_rows(out, block, source, Factors(), NOTHING, accumulate=True)

    def product_by_heads(
        self, block: Block, source: torch.Tensor, values: torch.Tensor, heads: HeadColumns
    ) -> torch.Tensor:
        """Sums of source[j] over all rows, with a factor [nnz, heads of our columns] each."""
        sums = RowSums.begin(source, len(block.indptr) - 1, heads)
        add_shares(sums, block, source, values.contiguous(), weighted=False)
        return sums.out

    def heads(self, heads: int, width: int) -> HeadColumns:
        """Our columns of a tensor whose columns are those of some heads."""
        return attention.head_columns(self.grid, heads, width, self.grid.m)

    def own_heads(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """[nnz, H] -> the heads that our columns belong to."""
        return values[:, self.heads(values.shape[1], width).span].contiguous()

    # -- primitives ------------------------------------------------------------------------

    def gemm(self, ranges: RowRanges, tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """[N/P, D/M] -> [N/P, D'/M]: the ring there, and the ring back."""
        channel = self.channel("feature")
        if self.grid.feature == 1:
            return gemm.linear(tile, weight, NOTHING)
        rows = gemm.ring_gemm(channel, ranges, tile, weight, NOTHING)
        return gemm.rows_to_tile(channel, ranges, rows)

    def tile_sources(self, ranges: RowRanges, csr: Csr, group_rows: int) -> Sources:
        """The exchange pattern of a partition's rows over tiles."""
        channel = self.channel("graph")
        if channel.axis.size == 1:
            return local_sources(csr, channel.axis, channel.staging)
        (found,) = find_sources(
            channel,
            [csr],
            RangeHolders(channel.axis, ranges.partitions),
            nodes=ranges.nodes,
            group_rows=group_rows,
            edges=[True],
        )
        return found

    def row_sources(self, ranges: RowRanges, csr: Csr, group_rows: int) -> Sources:
        """The exchange pattern of any rows over whole rows, with positions of non-zeros."""
        channel = self.channel("world")
        (found,) = find_sources(
            channel,
            [csr],
            RangeHolders(channel.axis, ranges.workers),
            nodes=ranges.nodes,
            group_rows=group_rows,
            edges=[True],
        )
        return found

    def spmm(self, sources: Sources, tile: torch.Tensor) -> torch.Tensor:
        """[N/P, D/M] sums over in-neighbours."""
        operand = tile_operand(tile)
        return spmm(self.channel("graph"), sources, operand, Reduction(), NOTHING, depth=DEPTH)

    def weighted_spmm(
        self, sources: Sources, tile: torch.Tensor, values: torch.Tensor, width: int
    ) -> torch.Tensor:
        """[N/P, D/M] sums weighted per head by ``values`` [nnz, H], in the CSR's order."""
        part = attention.Weighing(
            shares=EdgeValues(sources, self.own_heads(values, width)),
            heads=self.heads(values.shape[1], width),
            weighted=False,
        )
        (found,) = attention.weigh(self.channel("graph"), tile, [part], depth=DEPTH)
        return found

    def sddmm(
        self, sources: Sources, keys: torch.Tensor, queries: torch.Tensor, heads: int
    ) -> torch.Tensor:
        """[nnz, H] dot products of keys [N/(P*M), D] and the rows' queries [rows, D]."""
        score = PairScore(kind="dot", heads=heads)
        part = attention.Scoring(sources=sources, queries=queries, score=score)
        (found,) = attention.sddmm(self.channel("world"), keys, [part], depth=DEPTH)
        assert isinstance(found, EdgeValues), "edges are in memory"
        return found.values

    def gather_scores(self, scores: torch.Tensor, width: int) -> torch.Tensor:
        """[nnz of the partition, heads of our columns] from the scores of its M sub-ranges."""
        return attention.scatter_heads(self.channel("feature"), scores, width)

    def land(
        self,
        ranges: RowRanges,
        ids: torch.Tensor,
        rows: torch.Tensor,
        weight: torch.Tensor | None,
        batch_rows: int,
    ) -> torch.Tensor:
        """[N/P, D'/M] of loaded rows, multiplied with a weight on the way, or as they are."""
        return land(
            self.channel("world"),
            ranges,
            Loaded(ids, rows),
            (lambda x: x) if weight is None else (lambda x: gemm.linear(x, weight, NOTHING)),
            layout="tile",
            width=rows.shape[1] if weight is None else len(weight),
            batch_rows=batch_rows,
        ).data

    def sum_loaded(
        self,
        ranges: RowRanges,
        csr: Csr,
        ids: torch.Tensor,
        rows: torch.Tensor,
        group_rows: int,
    ) -> torch.Tensor:
        """[N/P, D/M] sums over in-neighbours of rows that their loaders send."""
        raw = RawFeatures([], rows, placed=False)
        nodes, all_ids = self._ctx.job.spec.input.nodes[0], DenseIds(ranges.nodes, self.grid.rank)
        loaded = LoadedNodes(nodes, all_ids, raw, ids.numpy())
        locations, channel = locate_features(self._ctx, loaded, ranges), self.channel("world")
        (sources,) = find_sources(
            channel,
            [csr],
            LoadedHolders(channel.axis, partial(look_up_ascending, channel, ranges, locations)),
            nodes=ranges.nodes,
            group_rows=group_rows,
            edges=[True],
        )
        operand = loaded_operand(channel, Loaded(ids, rows), None)
        return spmm(channel, sources, operand, Reduction(), NOTHING, depth=DEPTH)

    def construct(
        self, source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64], nodes: int
    ) -> tuple[RowRanges, Csr]:
        """The partition's CSR, from the edges that each rank read."""
        histogram, shift = histogram_of(destination, nodes)
        narrow = EdgeChunk(source.astype(np.int32), destination.astype(np.int32), None)
        edges = Edges([narrow], histogram, shift, False, len(source))
        ranges = choose_ranges(self._ctx, [edges], nodes)
        sub_range = build_graph(self._ctx, self._ctx.job.spec.input.edges[0], edges, ranges, nodes)
        return ranges, in_memory(gather_partition(self.exchange, ranges, sub_range))
