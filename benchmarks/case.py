"""The graph that the primitives' benchmark has, and one rank's share of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from benchmarks.baselines import graph_exchange, two_d
from benchmarks.dataset import rmat, write_edges
from benchmarks.engine import GROUP_BYTES, Engine
from embertide.graph.sources import Sources
from embertide.kernels.csr import Csr

HEADS = 4
FILES = 16
"""Of edges; a rank reads its share of them."""
GROUPS = 8
"""Groups in which remote rows come where their overlap is measured, so that there is some."""


@dataclass(frozen=True)
class Shape:
    """A case: the grid, and the folder of the graph, see :func:`draw`."""

    p: int
    m: int
    folder: Path


def draw(folder: Path, *, scale: int, width: int) -> Path:
    """Write the graph, as edge files and as arrays that all ranks map; returns ``folder``."""
    source, destination = rmat(scale, 20 << scale)
    write_edges(folder / "edges", source, destination, FILES)
    generator = np.random.default_rng(1)
    arrays = {
        "source": source.astype(np.int32),
        "destination": destination.astype(np.int32),
        "x": generator.standard_normal((1 << scale, width), dtype=np.float32),
        "weight": generator.standard_normal((width, width), dtype=np.float32) / width**0.5,
        "loaded": generator.permutation(1 << scale),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


class Case:
    """One rank's share of a graph, in every layout that a primitive wants. Collective.

    What only some primitives want is made when the first of them is compared, collectively too.

    Attributes:
        run_rows: slots of a group of tiles as a run makes them, of ``GROUP_BYTES``.
        whole_run_rows: of a group or batch of rows with all columns.
        group_rows: of smaller ones, so that there are ``GROUPS``.
    """

    def __init__(self, rank: int, shape: Shape) -> None:
        self._folder = shape.folder
        self.engine = engine = Engine(rank, shape.p, shape.m)
        grid, x = engine.grid, self._array("x")
        nodes, self.width = x.shape
        self.nodes = nodes
        source, destination = (self._array(name).numpy() for name in ("source", "destination"))
        self.ranges = ranges = engine.cut(destination, nodes)
        start, stop = ranges.partition(grid.p)
        first, last = ranges.worker(rank)
        self.csr = engine.csr(source, destination, start, stop, nodes)
        self.sub_range = self.csr.slice(first - start, last - start)
        self.weight = self._array("weight").clone()
        self.tile = x[start:stop, engine.columns(self.width)].clone()
        self.rows = x[first:last].clone()
        self.loaded_ids = self._array("loaded")[rank :: grid.world].clone()
        self.loaded = x[self.loaded_ids]
        self.group_rows = self._group_rows(self.csr, grid.graph)
        value = x.element_size()
        self.run_rows = max(1, GROUP_BYTES // (value * self.tile.shape[1]))
        self.whole_run_rows = max(1, GROUP_BYTES // (value * self.width))
        self.files = sorted((shape.folder / "edges").glob("*.parquet"))

    def _array(self, name: str) -> torch.Tensor:
        """One of the graph's arrays, mapped."""
        return torch.from_numpy(np.load(self._folder / f"{name}.npy", mmap_mode="c"))

    @cached_property
    def sources(self) -> Sources:
        """Over tiles, in groups as a run makes them."""
        return self.engine.tile_sources(self.ranges, self.csr, self.run_rows)

    @cached_property
    def whole_rows(self) -> Sources:
        """Of the partition's non-zeros over whole rows."""
        return self.engine.row_sources(self.ranges, self.csr, self.whole_run_rows)

    @cached_property
    def own_rows(self) -> Sources:
        """Of the sub-range's non-zeros over whole rows."""
        return self.engine.row_sources(self.ranges, self.sub_range, self.whole_run_rows)

    @cached_property
    def values(self) -> torch.Tensor:
        """[nnz, HEADS] on the partition's edges."""
        generator = torch.Generator().manual_seed(self.engine.grid.p)
        return torch.rand(self.csr.nnz, HEADS, generator=generator)

    @cached_property
    def graph(self) -> graph_exchange.Pattern:
        """What the exchange of the graph has sent before."""
        return graph_exchange.send_graph(self.engine, self.ranges, self.csr)

    @cached_property
    def block(self) -> two_d.Pattern:
        """Our block of the matrix that is cut both ways."""
        return two_d.prepare(self.engine, self.ranges, self.csr)

    def _group_rows(self, csr: Csr, holders: int) -> int:
        """Slots a group, so that what the other holders have comes in ``GROUPS`` groups."""
        remote = len(torch.unique(csr.cols)) * (holders - 1) // holders
        return max(1, -(-self.engine.longest(remote) // GROUPS))

    def share(self) -> list[Path]:
        """The edge files that this rank reads."""
        return self.files[self.engine.grid.rank :: self.engine.grid.world]
