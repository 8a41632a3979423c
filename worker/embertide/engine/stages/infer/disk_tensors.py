"""The tensors of nodes that are on disk, by name and layout, and parts of them in memory.

Of a GPU that is smaller than the graph, its memory is the memory, and the host's is the disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate

import torch

from embertide.engine.stages.infer.panel_widths import PanelWidths
from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.kernels.store import Store, StoredTensor
from embertide.layouts import Layout, Shard
from embertide.program.plans.panels import count_columns, stored_columns
from embertide.program.plans.plan import Plan
from embertide.program.plans.spill import stored
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Held


@dataclass(frozen=True)
class Block:
    """Some rows of the sub-range of every worker.

    Attributes:
        ranges: which worker owns which rows of the block.
        own: those of our sub-range.
        tile: those of our partition, a run of each sub-range.
    """

    ranges: RowRanges
    own: slice
    tile: tuple[slice, ...]

    def runs(self, layout: Layout) -> Sequence[slice]:
        """The rows of our part of a tensor in a layout."""
        return self.tile if layout == "tile" else (self.own,)


def blocks(ranges: RowRanges, grid: Grid, step: int) -> Iterator[Block]:
    """So many rows of each worker at a time; at least one block.

    The workers of a partition have the same number of blocks.
    """
    sizes = [stop - start for start, stop in map(ranges.worker, range(grid.world))]
    partition = grid.feature_axis.ranks
    for first in range(0, max(1, *(sizes[rank] for rank in partition)), step):
        spans = [slice(min(first, size), min(first + step, size)) for size in sizes]
        cuts = [0, *accumulate(span.stop - span.start for span in spans)]
        starts = [ranges.within(rank)[0] for rank in partition]
        tile = (
            slice(spans[rank].start + start, spans[rank].stop + start)
            for rank, start in zip(partition, starts, strict=True)
        )
        own = spans[grid.rank]
        yield Block(RowRanges.of_workers(cuts, grid.feature), own, tuple(tile))


@dataclass
class DiskTensors:
    """Files of tensors.

    Attributes:
        files: name and layout of a tensor -> where it is.
    """

    execution: Execution
    plan: Plan
    scratch: Store
    widths: PanelWidths
    files: dict[tuple[str, Held], StoredTensor] = field(default_factory=dict)

    def new(self, name: str, layout: Layout) -> StoredTensor:
        """A file for our part of a tensor in a layout."""
        grid, width = self.execution.grid, self.plan.program.widths[name]
        ranges = self.execution.ranges_of(name)
        start, stop = ranges.worker(grid.rank) if layout == "rows" else ranges.partition(grid.p)
        slices = ColumnSlices(width, grid.feature if layout == "tile" else 1)
        columns = slices.size(grid.m if layout == "tile" else 0)
        panel = stored_columns(self.plan, name, stored(self.plan, layout))
        return self.scratch.empty(stop - start, columns, panel)

    def add(self, name: str, layout: Layout, file: StoredTensor) -> None:
        """The tensor is there, for later operations and for checks."""
        self.files[name, stored(self.plan, layout)] = file
        shard = Shard(layout, file.data, self.plan.program.widths[name])
        self.execution.tensors.restore({name: shard}, frees=())

    def copied(self, file: StoredTensor, panel: int | None = None) -> StoredTensor:
        """The same values with so many columns in a panel; by default all."""
        out = self.scratch.empty(file.rows, file.width, panel)
        spans = list(file.blocks(file.width))
        with self.scratch.mover() as mover:
            parts = mover.ahead(partial(file.read_rows, *span) for span in spans)
            for (first, _), rows in zip(spans, parts, strict=True):
                mover.write(partial(out.write_rows, first), rows)
        return out

    def drop(self, name: str, *layouts: Held) -> None:
        """Close the files of a tensor, in some layouts; without any in all."""
        gone = [key for key in self.files if key[0] == name and (not layouts or key[1] in layouts)]
        for key in gone:
            if key[1] == "loaded":
                self.execution.tensors.loaded(name).release()
            self.files.pop(key).close()

    def of(self, name: str, held: Held) -> StoredTensor:
        """The file of a tensor in a layout."""
        return self.files[name, stored(self.plan, held)]

    # -- parts in memory ---------------------------------------------------------------------

    def whole(self, name: str, held: Held, layout: Layout) -> Shard:
        """All of our part of a tensor."""
        file = self.of(name, held)
        values = file.read_columns(0, file.width) if file.width else self.scratch.room(file.rows, 0)
        return Shard(layout, values, self.plan.program.widths[name])

    def columns(self, name: str, held: Held, each: Sequence[slice]) -> torch.Tensor:
        """[rows, k] some columns of every slice; of a tile those of our own."""
        file, grid = self.of(name, held), self.execution.grid
        if held in ("tile", "sums"):
            start, _ = ColumnSlices(self.plan.program.widths[name], grid.feature).bounds(grid.m)
            return file.read_columns(each[grid.m].start - start, each[grid.m].stop - start)
        if len(each) == 1:
            return file.read_columns(each[0].start, each[0].stop)
        out, at = self.scratch.room(file.rows, count_columns(each)), 0
        for part in each:
            values = file.read_columns(part.start, part.stop)
            out[:, at : at + values.shape[1]] = values
            at += values.shape[1]
        return out

    def block(self, name: str, layout: Layout, block: Block) -> Shard:
        """All columns of some rows of our part."""
        file, width = self.of(name, layout), self.plan.program.widths[name]
        runs = [file.read_rows(rows.start, rows.stop) for rows in block.runs(layout)]
        return Shard(layout, runs[0] if len(runs) == 1 else torch.cat(runs), width)

    def of_widths(self, widths: dict[str, int]) -> Execution:
        """The execution of a program in which some tensors have so many columns."""
        program = self.plan.program
        return replace(self.execution, program=replace(program, widths=program.widths | widths))


def write_block(file: StoredTensor, block: Block, shard: Shard) -> None:
    """Set some rows of our part of a tensor."""
    at = 0
    for rows in block.runs(shard.layout):
        count = rows.stop - rows.start
        file.write_rows(rows.start, shard.data[at : at + count])
        at += count


def write_whole(file: StoredTensor, values: torch.Tensor) -> None:
    """Set all of our part of a tensor, some rows at a time."""
    for first, last in file.blocks(max(1, file.width)):
        file.write_rows(first, values[first:last])
