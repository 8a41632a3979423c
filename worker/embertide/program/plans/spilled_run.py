"""Layers whose tensors are on disk: each operation brings parts of them to memory, one at a time.

A sum over edges takes a panel, some columns of all rows; functions of rows that follow each other
take a block, all columns of some rows; any other operation takes what it reads and makes whole. A
part is run by the same code as a whole tensor, so that the bits are those of a run in memory. The
next part is read and the last one written while one is computed.

Of a GPU that is smaller than the graph, its memory is the memory, and the host's is the disk. The
plan chooses a width of panels that fits by what it counts. A GPU also has what is not counted, such
as the buffers of libraries; so a panel that does not fit is cut, and so are all that come later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import torch

from embertide.errors import WorkerFailed
from embertide.facts.telemetry.format import human_bytes
from embertide.footprint import FLOAT_BYTES
from embertide.graph.ghosts import GhostRanges
from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.kernels.ghost_store import few_blocks
from embertide.kernels.ghosts import on_ghosts
from embertide.kernels.memory import empty
from embertide.kernels.rows import pick_rows
from embertide.kernels.store import Store, StoredTensor
from embertide.layouts import Layout, Shard
from embertide.program.plans.boundaries import Part
from embertide.program.plans.panels import (
    Panel,
    PanelOp,
    count_columns,
    for_panel,
    narrower,
    panels,
    sorted_by_panels,
    stored_columns,
)
from embertide.program.plans.places import Fill, as_array, place_of
from embertide.program.plans.plan import Plan
from embertide.program.plans.spill import (
    Change,
    DiskOp,
    DiskPlan,
    block_rows,
    change_rows,
    on_disk,
    stored,
    stored_reads,
)
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Held, Input, Op
from embertide.program.steps.tensors import Tensors

NARROWER = (
    "the GPU had no memory for {columns} columns of a tensor at a time: layers go on with {fewer}"
    " (memory that torch has there: {held}); a smaller --gpu-memory (spec.workers.deviceMemory)"
    " plans for fewer from the start"
)
FULL = (
    "the GPU has no memory for {columns} columns of a tensor at a time, {why}; give workers a"
    " smaller --gpu-memory (spec.workers.deviceMemory), by which the plan takes fewer columns, or"
    " use more workers"
)


@dataclass
class Spilled:
    """Runs the operations of a plan, with all tensors of nodes on disk."""

    execution: Execution
    plan: Plan
    scratch: Store
    warn: Callable[[str], None] = lambda _sentence: None
    _disk: DiskTensors = field(init=False)
    _order: DiskPlan = field(init=False)
    _filled: list[StoredTensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = on_disk(self.plan)
        self._disk = DiskTensors(
            self.execution, self.plan, self.scratch, PanelWidths(self.plan, self.warn)
        )
        for name in self.plan.program.inputs.values():
            file = self.scratch.of(self.execution.tensors.loaded(name).data)
            self._disk.files[name, "loaded"] = file

    def run(self, at: int) -> None:
        """Make the result of operation ``at``; frees what no later one reads.

        A function of rows may be made with one after it. Collective: every rank must call.
        """
        own, tensors = self._order.ops[at], self.execution.tensors
        for each in own.changes:
            self.change(each)
        # What a change stores is no result of ours: what we free goes once ours is kept.
        tensors.begin(own.reads, {name for op in own.ops for name in op.frees})
        match own.parts:
            case "later":
                return
            case "ready":
                files = {own.op.out: self._disk.files.pop((own.op.out, "sums"))}
            case "columns":
                files = {own.op.out: self._by_columns(own.op)}
            case "rows":
                files = self._by_rows(own)
            case "whole":
                files = {own.op.out: self._whole(own.op, own.stores[own.op.out])}
        for name in own.frees:
            self._disk.drop(name)
        for read in own.reads:
            if any(read.name == op.onto for op in own.ops):
                tensors.take(read.name)
        for name, file in files.items():
            layout = own.stores[name]
            tensors.keep(name, Shard(layout, file.data, self.plan.program.widths[name]))
            self._disk.add(name, layout, file)

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> [N/(P*M), D'] its values, mapped from the disk.

        Collective: every rank must call.
        """
        program = self.plan.program
        for each in self._order.results:
            self.change(each)
        for name in dict.fromkeys(program.results.values()):
            file = self._disk.of(name, "rows")
            if file.panel < file.width:
                self._disk.add(name, "rows", self._disk.copied(file))
                file.close()
            self._disk.of(name, "rows").wait()
        return {key: self._disk.of(name, "rows").data for key, name in program.results.items()}

    # -- tensors that are kept, or that others have made -----------------------------------------

    def to_keep(self, name: str) -> Shard:
        """Our shard of a tensor that was made, with all its columns where there is one."""
        files, width = self._disk.files, self.plan.program.widths[name]
        layout: Layout = "rows" if (name, "rows") in files else "tile"
        return Shard(layout, files[name, layout].data, width)

    def values(self, shard: Shard) -> StoredValues:
        """Its rows, which are read when they are written elsewhere."""
        return StoredValues(self.scratch.of(shard.data))

    def fill(self, name: str, layout: Layout, fill: Fill) -> Shard:
        """Our shard of a tensor, with values from elsewhere, some rows at a time."""
        (first, _), columns = place_of(self.execution, name, layout)
        file = self._disk.new(name, layout)
        self._filled.append(file)
        shard = Shard(layout, file.data, self.plan.program.widths[name])
        for start, stop in file.blocks(max(1, file.width)):
            part = empty((stop - start, file.width))
            fill(slice(first + start, first + stop), slice(*columns), as_array(part))
            file.set_host_rows(start, part)
        return shard

    def let_go(self) -> None:
        """Close the files that were filled."""
        for file in self._filled:
            file.close()
        self._filled.clear()

    def go_on(self, first: int, shards: Mapping[str, Shard]) -> None:
        """The operations before number ``first``, with which a part begins, have made these."""
        self._go_on(first, shards)
        for name in self.plan.program.inputs.values():
            if self.plan.last_reads.get(name, -1) < first:
                self._disk.drop(name)

    def change(self, wanted: Change) -> None:
        """Store a tensor in another layout; what no operation reads any more is closed.

        Collective: every rank must call.
        """
        disk = self._disk
        if wanted.origin == "loaded":
            if sorted_by_panels(self.plan, wanted):
                _store_by_panels(disk, wanted)
            out = _landed(disk, wanted.name, wanted.to, wanted.layer)
        else:
            out = _converted(disk, wanted)
        if wanted.ends:
            disk.drop(wanted.name, wanted.origin)
        disk.add(wanted.name, wanted.to, out)

    def made(self, part: Part, shards: Mapping[str, Shard]) -> None:
        """A part has made these."""
        for name in part.freed - set(shards):
            self._disk.drop(name)
            self.execution.tensors.forget_one(name)
        self._go_on(part.end.at, shards)

    def _go_on(self, first: int, shards: Mapping[str, Shard]) -> None:
        for name, shard in shards.items():
            self._disk.add(name, shard.layout, self.scratch.of(shard.data))
        self._filled.clear()
        made = {name: held for name, held in self._disk.files if held != "loaded"}
        self._order = on_disk(self.plan, first, made)

    def start_again(self) -> None:
        """Close all files but those of features, and begin with the first operation."""
        self.let_go()
        inputs = self.plan.program.inputs.values()
        for name in {name for name, _ in self._disk.files} - set(inputs):
            self._disk.drop(name)
        self.execution.tensors.forget(inputs)
        self._order = on_disk(self.plan)

    # -- parts -----------------------------------------------------------------------------------

    def _by_columns(self, op: Op) -> StoredTensor:
        """A panel of what is read at a time, which gives the same columns of the result.

        So it does of sums for other operations, if it brings any.
        """
        disk, width = self._disk, self.plan.program.widths[op.out]
        out, others = disk.new(op.out, op.layout), self._sums_of(op)

        def add(every: Sequence[Panel], stored: list[Panel]) -> None:
            self._sum_panels(op, {op.out: out, **others}, every, stored)

        disk.widths.run(list(panels(self.plan, width, disk.execution.grid.m)), width, add)
        disk.files |= {(name, "sums"): file for name, file in others.items()}
        return out

    def _sum_panels(
        self,
        op: Op,
        files: dict[str, StoredTensor],
        every: Sequence[Panel],
        stored: list[Panel],
    ) -> None:
        """Some panels of the result, and of sums for others; their files are by name."""
        own = [for_panel(self.plan, op, panel.each) for panel in every]
        with self.scratch.mover() as mover:
            parts = mover.ahead((partial(self._read, some) for some in own), after_writes=True)
            for panel, some, read in zip(every, own, parts, strict=True):
                part = self._of_panel(some, panel, read)
                values = [some.op.lower(part).data]
                values += [_made(part.tensors, name).data for name in files if name != op.out]
                files_of = list(files.values())
                mover.write(partial(_write_columns, files_of, panel.own.start), values)
                stored.append(panel)
                del part, values

    def _sums_of(self, op: Op) -> dict[str, StoredTensor]:
        """Files for the sums that an operation makes for others, by their names."""
        names = [step.out for step in op.brings if step.out != op.steps[0].out]
        return {name: self._disk.new(name, "tile") for name in names}

    def _read(self, own: PanelOp) -> list[tuple[Input, torch.Tensor]]:
        """What an operation reads for a panel."""
        return [
            (read, self._disk.columns(read.name, read.layout, own.reads[read.name]))
            for read in stored_reads(self.plan, own.op.inputs)
        ]

    def _of_panel(
        self, own: PanelOp, panel: Panel, read: list[tuple[Input, torch.Tensor]]
    ) -> Execution:
        """The execution for some columns. What it reads goes as the operation is done with it."""
        part = self._disk.of_widths(own.widths)
        loaded = {name: x for (name, layout, _), x in read if layout == "loaded"}
        shards = [
            (name, Shard(_tile_or_rows(layout), x, own.widths[name]))
            for (name, layout, _), x in read
            if layout != "loaded"
        ]
        read.clear()
        tensors = part.tensors.part(
            part.program, shards, op=own.op, columns=panel.columns, loaded=loaded
        )
        return replace(part, tensors=tensors, on_hop=partial(part.on_hop, columns=panel.each))

    def _by_rows(self, own: DiskOp) -> dict[str, StoredTensor]:
        """Some rows of all inputs at a time, which give the same rows of the results."""
        disk, executions = self._disk, [self.execution.with_factors(op) for op in own.ops]
        files = {name: disk.new(name, layout) for name, layout in own.stores.items()}
        ranges, grid = self.execution.ranges_of(own.op.out), self.execution.grid
        every = list(blocks(ranges, grid, block_rows(self.plan, own.ops)))
        with self.scratch.mover() as mover:
            parts = mover.ahead(partial(self._read_rows, own, block) for block in every)
            for block, shards in zip(every, parts, strict=True):
                part = self._of_block(own, block, shards)
                for op, all_rows in zip(own.ops, executions, strict=True):
                    part.tensors.begin(op.inputs, op.frees)
                    result = op.lower(replace(part, factors=all_rows.factors))
                    part.tensors.keep(op.out, result)
                for op in own.ops:
                    if op.out in files:
                        channel = part.channel(op.steps[0].layer)
                        rows = part.tensors.converted(op.out, own.stores[op.out], channel)
                        mover.write(partial(write_block, files[op.out], block), rows)
                del part, result
        return files

    def _read_rows(self, own: DiskOp, block: Block) -> list[tuple[str, Shard]]:
        """What operations read for some rows."""
        reads = stored_reads(self.plan, own.reads)
        return [
            (read.name, self._disk.block(read.name, _layout(read.layout), block)) for read in reads
        ]

    def _of_block(self, own: DiskOp, block: Block, shards: list[tuple[str, Shard]]) -> Execution:
        """An execution for some rows."""
        execution, node_type = self.execution, self.plan.program.types[own.op.out]
        start = execution.ranges[node_type].within(execution.grid.rank)[0]
        some: dict[Layout, slice | torch.Tensor] = {
            "rows": slice(start + block.own.start, start + block.own.stop),
            "tile": _rows_of(block.tile),
        }
        ranges = execution.ranges | {node_type: block.ranges}
        tensors = execution.tensors.part(self.plan.program, shards, ranges=ranges)
        shards.clear()
        return replace(execution, tensors=tensors, ranges=ranges, some=some)

    def _whole(self, op: Op, layout: Layout) -> StoredTensor:
        """All of what is read and made."""
        disk = self._disk
        shards = [
            (read.name, disk.whole(read.name, read.layout, _layout(read.layout)))
            for read in stored_reads(self.plan, op.inputs)
        ]
        tensors = self.execution.tensors.part(self.plan.program, shards, op=op)
        del shards
        result = op.lower(replace(self.execution, tensors=tensors))
        out = disk.new(op.out, layout)
        with self.scratch.mover() as mover:
            mover.write(partial(write_whole, out), result.data)
            del result
            for step in op.brings:
                if step.out != op.steps[0].out:
                    shard = _made(tensors, step.out)
                    file = disk.files[step.out, "sums"] = disk.new(step.out, shard.layout)
                    mover.write(partial(write_whole, file), shard.data)
        return out


def _made(tensors: Tensors, name: str) -> Shard:
    """What an operation has made beside its result."""
    shard = tensors.current(name)
    assert shard is not None, f"{name!r} was not made"
    return shard


def _write_columns(files: list[StoredTensor], first: int, values: list[torch.Tensor]) -> None:
    for file, columns in zip(files, values, strict=True):
        file.write_columns(first, columns)


def _tile_or_rows(held: Held) -> Layout:
    """Sums of other operations are tiles."""
    return "rows" if held == "rows" else "tile"


def _layout(held: Held) -> Layout:
    return "tile" if held == "tile" else "rows"


def _rows_of(runs: tuple[slice, ...]) -> slice | torch.Tensor:
    if len(runs) == 1:
        return runs[0]
    return torch.cat([torch.arange(run.start, run.stop) for run in runs])


# -- tensors on disk --------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredValues:
    """Rows of a tensor that are read as they are asked for, by any thread."""

    file: StoredTensor
    itemsize: int = FLOAT_BYTES

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of each."""
        return self.file.rows, self.file.width

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        if isinstance(rows, slice):
            return self.file.host_rows(rows.start, rows.stop).numpy()
        return pick_rows(self.file.data, torch.from_numpy(rows), self.file.width).numpy()


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


def _few_of_ghosts(ranges: RowRanges, grid: Grid, step: int) -> Iterator[Block]:
    """As many as are in memory at a time; a tile has them one after the other."""
    assert isinstance(ranges, GhostRanges)
    for first, last in few_blocks(ranges.within(0)[1], step):
        tile = slice(first * grid.feature, last * grid.feature)
        yield Block(ranges.of_rows(last - first), slice(first, last), (tile,))


@on_ghosts(_few_of_ghosts)
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
        if gone:
            self.execution.tensors.settle(name)
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
        if all(one.stop == after.start for one, after in pairwise(each)):
            return file.read_columns(each[0].start, each[-1].stop)
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


@dataclass
class PanelWidths:
    """The widths of panels of one run.

    Attributes:
        most: columns that a panel may have now; 0: as many as the plan says.
        warn: called with a sentence for the run's user.
    """

    plan: Plan
    warn: Callable[[str], None]
    most: int = 0

    def run(
        self,
        panels: Sequence[Panel],
        width: int,
        run: Callable[[Sequence[Panel], list[Panel]], None],
    ) -> None:
        """Run for all panels of a tensor; for those that had no memory as narrower ones.

        On a grid of several workers none is cut: they exchange rows for the same panels.

        Args:
            run: called with panels; adds each to a list once its result is stored.

        Raises:
            WorkerFailed: no panel can be narrower.
        """
        rest = self._cut(panels, width)
        while rest:
            stored: list[Panel] = []
            try:
                run(rest, stored)
            except torch.OutOfMemoryError as error:
                self._narrow(rest[len(stored)], width, error)
            rest = self._cut(rest[len(stored) :], width)

    def _cut(self, panels: Sequence[Panel], width: int) -> list[Panel]:
        if not self.most:
            return list(panels)
        return [part for panel in panels for part in narrower(self.plan, width, panel, self.most)]

    def _narrow(self, panel: Panel, width: int, error: torch.OutOfMemoryError) -> None:
        """From now on no panel has more than half as many columns as one."""
        columns = panel.own.stop - panel.own.start
        if self.plan.grid.workers > 1:
            why = "which workers that exchange rows can't change"
            raise WorkerFailed(FULL.format(columns=columns, why=why)) from error
        self.most = max(1, columns // 2)
        fewer = next(iter(narrower(self.plan, width, panel, self.most))).own
        if fewer == panel.own:
            why = "and no fewer are computed together"
            raise WorkerFailed(FULL.format(columns=columns, why=why)) from error
        held = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
        self.warn(
            NARROWER.format(columns=columns, fewer=fewer.stop - fewer.start, held=human_bytes(held))
        )


# -- changes of layouts -----------------------------------------------------------------------


def _store_by_panels(disk: DiskTensors, wanted: Change) -> None:
    """Features panel by panel, in the order in which they were loaded."""
    loaded = disk.files[wanted.name, "loaded"]
    out = disk.copied(loaded, stored_columns(disk.plan, wanted.name, wanted.to))
    disk.drop(wanted.name, "loaded")
    disk.files[wanted.name, "loaded"] = out


def _landed(disk: DiskTensors, name: str, to: Layout, layer: int) -> StoredTensor:
    """Features in the order of their nodes, some columns at a time.

    Collective: every rank must call.
    """
    out = disk.new(name, to)

    def land(every: Sequence[Panel], stored: list[Panel]) -> None:
        _land_panels(disk, name, to, layer, out, every, stored)

    disk.widths.run(list(_columns(disk, name, to)), disk.plan.program.widths[name], land)
    return out


def _land_panels(
    disk: DiskTensors,
    name: str,
    to: Layout,
    layer: int,
    out: StoredTensor,
    every: Sequence[Panel],
    stored: list[Panel],
) -> None:
    """Some panels of features in the order of their nodes.

    Collective: every rank must call.
    """
    reads = (partial(disk.columns, name, "loaded", panel.each) for panel in every)
    with disk.scratch.mover() as mover:
        parts = mover.ahead(reads, after_writes=True)
        for panel in every:
            part = disk.of_widths({name: count_columns(panel.each)})
            tensors = part.tensors.part(part.program, [], loaded={name: next(parts)})
            landed = tensors.land(
                name, None, layout=to, width=part.program.widths[name], layer=layer
            )
            del tensors
            mover.write(partial(out.write_columns, panel.own.start), landed.data)
            stored.append(panel)
            del landed


def _columns(disk: DiskTensors, name: str, to: Layout) -> Iterator[Panel]:
    """Parts of features, of which whole rows are one slice."""
    plan, width = disk.plan, disk.plan.program.widths[name]
    if to == "tile":
        yield from panels(plan, width, disk.execution.grid.m)
        return
    step = stored_columns(plan, name, to)
    for first in range(0, width, step):
        columns = slice(first, min(first + step, width))
        yield Panel(columns, columns, (columns,))


def _converted(disk: DiskTensors, wanted: Change) -> StoredTensor:
    """A tile as rows, or rows as a tile, some rows at a time. Collective: every rank must call."""
    name, execution = wanted.name, disk.execution
    origin: Layout = "tile" if wanted.to == "rows" else "rows"
    out, node_type = disk.new(name, wanted.to), disk.plan.program.types[name]
    channel = execution.channel(wanted.layer, "feature", wanted.primitive)
    rows, ranges = change_rows(disk.plan, name), execution.ranges[node_type]
    every = list(blocks(ranges, execution.grid, rows))
    with disk.scratch.mover() as mover:
        parts = mover.ahead(partial(disk.block, name, origin, block) for block in every)
        for block, shard in zip(every, parts, strict=True):
            tensors = execution.tensors.part(
                disk.plan.program, [(name, shard)], ranges={node_type: block.ranges}
            )
            changed = tensors.converted(name, wanted.to, channel)
            mover.write(partial(write_block, out, block), changed)
    return out
