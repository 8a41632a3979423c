"""The one place where the benchmarks call Embertide's primitives.

What a primitive is called or how it takes its arguments is mended here and nowhere else;
``kernel_calls.py`` is the same for the kernels. One :class:`Engine` is one rank on one grid.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.grid import AxisName, ColumnSlices, Grid, RowRanges
from embertide.kernels import nodewise
from embertide.kernels.block import Block, add_rows, no_weights
from embertide.kernels.csr import Csr, build_csr, pack
from embertide.layouts import Loaded
from embertide.primitives import attention, gemm
from embertide.primitives.exchange import Channel, Exchange
from embertide.primitives.landing import land
from embertide.primitives.shuffle import EdgeChunk, Edges
from embertide.primitives.sources import RangeHolders, Sources, find_sources
from embertide.primitives.spmm import spmm, tile_operand
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from embertide.stages.csr import build_graph, choose_ranges, cut_ranges, gather_partition
from embertide.stages.ingest import HISTOGRAM_BITS
from embertide.telemetry.recorder import CountingRecorder

DEPTH = 2
"""Groups under way while one is computed, the manifest's default."""

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
    """One rank's primitives on a P x M grid. Every method is collective on its axis."""

    def __init__(self, rank: int, p: int, m: int) -> None:
        self.grid = Grid(GridShape.of(p, m), rank)
        self.recorder = CountingRecorder()
        self.exchange = Exchange(self.grid, torch.device("cpu"), self.recorder)
        nowhere: Any = None  # no stage that runs here touches storage
        job = load_manifest(_MANIFEST)
        self._ctx = RunContext(job, self.exchange, nowhere, lambda _progress: None)

    # -- transport and counts --------------------------------------------------------------

    def channel(self, axis: AxisName) -> Channel:
        """Point-to-point transfers on an axis; baselines use it too, so all bytes are counted."""
        return self.exchange.channel(axis, "benchmark")

    def longest(self, count: int) -> int:
        """The largest of all ranks' numbers."""
        return max(self.exchange.all_objects(count))

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
        histogram, shift = _histogram(destination, nodes)
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
        mine = (destination >= start) & (destination < stop)
        keys = pack(destination[mine] - start, source[mine], nodes)
        return build_csr(keys, None, stop - start, nodes, first=start)

    # -- local compute, the same for ours and for the baselines ----------------------------

    def add_product(
        self, out: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor, source: torch.Tensor
    ) -> None:
        """out[i] += sum of source[j] over row i; every row is present."""
        add_rows(out, Block(None, indptr, indices), source, no_weights)

    def add_heads(
        self,
        out: torch.Tensor,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        source: torch.Tensor,
        values: torch.Tensor,
        width: int,
        heads: int,
    ) -> None:
        """As :meth:`add_product`, with a factor [nnz, heads of our columns] per non-zero."""
        columns = self.columns(width)
        spans = attention.head_spans(heads, width, columns.start, columns.stop)
        block = Block(None, indptr, indices)
        for number, (_, span) in enumerate(spans):
            factors, part = values[:, number].contiguous(), source[:, span].contiguous()
            add_rows(out[:, span], block, part, lambda c, f=factors: f[c.span])

    def own_heads(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """[nnz, H] -> the heads that our columns belong to."""
        columns, heads = self.columns(width), values.shape[1]
        spans = attention.head_spans(heads, width, columns.start, columns.stop)
        return values[:, [head for head, _ in spans]]

    # -- primitives ------------------------------------------------------------------------

    def gemm(self, ranges: RowRanges, tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """[N/P, D/M] -> [N/P, D'/M]: the ring there, and the ring back."""
        channel = self.channel("feature")
        if self.grid.feature == 1:
            return gemm.linear(tile, weight, None)
        return gemm.rows_to_tile(
            channel, ranges, gemm.ring_gemm(channel, ranges, tile, weight, None)
        )

    def tile_sources(self, ranges: RowRanges, csr: Csr, group_rows: int) -> Sources:
        """The exchange pattern of a partition's rows over tiles."""
        channel = self.channel("graph")
        return find_sources(
            channel,
            csr,
            RangeHolders.tiles(ranges, channel.axis),
            nodes=ranges.nodes,
            group_rows=group_rows,
            edges=True,
        )

    def row_sources(self, ranges: RowRanges, csr: Csr, group_rows: int) -> Sources:
        """The exchange pattern of any rows over whole rows, with positions of non-zeros."""
        channel = self.channel("world")
        return find_sources(
            channel,
            csr,
            RangeHolders.rows(ranges, channel.axis),
            nodes=ranges.nodes,
            group_rows=group_rows,
            edges=True,
        )

    def spmm(self, sources: Sources, tile: torch.Tensor) -> torch.Tensor:
        """[N/P, D/M] sums over in-neighbours."""
        return spmm(self.channel("graph"), sources, tile_operand(tile), depth=DEPTH)

    def weighted_spmm(
        self, sources: Sources, tile: torch.Tensor, values: torch.Tensor, width: int
    ) -> torch.Tensor:
        """[N/P, D/M] sums weighted per head by ``values`` [nnz, H], in the CSR's order."""
        return attention.attend(
            self.channel("graph"),
            sources,
            tile,
            lambda chunk: values[chunk.edges],
            heads=values.shape[1],
            width=width,
            depth=DEPTH,
            weighted=False,
        )

    def sddmm(
        self, sources: Sources, keys: torch.Tensor, queries: torch.Tensor, heads: int
    ) -> torch.Tensor:
        """[nnz, H] dot products of keys [N/(P*M), D] and the rows' queries [rows, D]."""
        return attention.sddmm(
            self.channel("world"),
            sources,
            keys,
            queries,
            lambda key, query: nodewise.pair_dot(key, query, heads),
            heads=heads,
            depth=DEPTH,
        )

    def gather_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """[nnz of the partition, H] from the scores of its M sub-ranges."""
        return gemm.gather_rows(self.channel("feature"), scores)

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
            (lambda x: x) if weight is None else (lambda x: gemm.linear(x, weight, None)),
            layout="tile",
            width=rows.shape[1] if weight is None else len(weight),
            batch_rows=batch_rows,
        ).data

    def construct(
        self, source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64], nodes: int
    ) -> tuple[RowRanges, Csr]:
        """The partition's CSR, from the edges that each rank read."""
        histogram, shift = _histogram(destination, nodes)
        narrow = EdgeChunk(source.astype(np.int32), destination.astype(np.int32), None)
        edges = Edges([narrow], histogram, shift, False, len(source))
        ranges = choose_ranges(self._ctx, edges, nodes)
        sub_range = build_graph(self._ctx, edges, ranges)
        return ranges, gather_partition(self._ctx, ranges, sub_range)


def _histogram(destination: npt.NDArray[np.int64], nodes: int) -> tuple[npt.NDArray[np.int64], int]:
    """Edges per 2^shift consecutive destinations, and shift."""
    shift = max(0, (nodes - 1).bit_length() - HISTOGRAM_BITS)
    return np.bincount(destination >> shift, minlength=((nodes - 1) >> shift) + 1), shift


def read_edges(files: list[Path]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sources and destinations of some parquet files, on one thread."""
    import pyarrow.parquet as pq

    if not files:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    tables = [pq.ParquetFile(file).read(["src", "dst"], use_threads=False) for file in files]
    source, destination = (
        np.concatenate([table.column(name).to_numpy() for table in tables])
        for name in ("src", "dst")
    )
    return source, destination
