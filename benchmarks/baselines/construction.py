"""Graph construction by one reader, which cuts and sends (Deal, section 4.5, Fig. 20: DistDGL)."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.edges import read_edges
from benchmarks.engine import Engine
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr


def single_reader(engine: Engine, files: list[Path], nodes: int) -> tuple[RowRanges, Csr]:
    """Rank 0 reads all files, sorts, and sends every rank the CSR of its partition.

    Collective: every rank must call.
    """
    grid, channel = engine.grid, engine.channel("world")
    bounds = torch.zeros(grid.graph + 1, dtype=torch.int64)
    lengths = [torch.empty(0, dtype=torch.int64)] * grid.world
    columns = [torch.empty(0, dtype=torch.int32)] * grid.world
    if grid.rank == 0:
        source, destination = read_edges(files)
        ranges = engine.cut(destination, nodes)
        bounds = torch.tensor(ranges.partitions)
        whole = engine.csr(source, destination, 0, nodes, nodes)
        parts = [whole.slice(*ranges.partition(p)) for p in range(grid.graph)]
        lengths = [parts[rank // grid.feature].indptr.diff() for rank in range(grid.world)]
        columns = [parts[rank // grid.feature].cols for rank in range(grid.world)]
    bounds = channel.all_gather(bounds)[0]
    ranges = RowRanges(tuple(bounds.tolist()), grid.feature)
    counts, cols = channel.all_to_all(lengths)[0], channel.all_to_all(columns)[0]
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return ranges, Csr(ranges.partition(grid.p)[0], indptr, cols)
