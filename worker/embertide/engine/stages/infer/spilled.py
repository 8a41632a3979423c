"""Layers whose tensors are on disk: each operation brings parts of them to memory, one at a time.

A sum over edges takes a panel, some columns of all rows; functions of rows that follow each other
take a block, all columns of some rows; any other operation takes what it reads and makes whole. A
part is run by the same code as a whole tensor, so that the bits are those of a run in memory. The
next part is read and the last one written while one is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from embertide.engine.stages.infer.disk_changes import change
from embertide.engine.stages.infer.disk_tensors import (
    Block,
    DiskTensors,
    blocks,
    write_block,
    write_whole,
)
from embertide.engine.stages.infer.panel_widths import PanelWidths
from embertide.kernels.store import Store, StoredTensor
from embertide.layouts import Layout, Shard
from embertide.program.plans.panels import Panel, PanelOp, for_panel, panels
from embertide.program.plans.plan import Plan
from embertide.program.plans.spill import DiskOp, DiskPlan, block_rows, on_disk, stored_reads
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Held, Input, Run
from embertide.program.steps.tensors import Tensors


@dataclass
class SpilledLayers:
    """Runs the operations of a plan, with all tensors of nodes on disk."""

    execution: Execution
    plan: Plan
    scratch: Store
    warn: Callable[[str], None] = lambda _sentence: None
    _disk: DiskTensors = field(init=False)
    _order: DiskPlan = field(init=False)

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
            change(self._disk, each)
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
            change(self._disk, each)
        for name in dict.fromkeys(program.results.values()):
            file = self._disk.of(name, "rows")
            if file.panel < file.width:
                self._disk.add(name, "rows", self._disk.copied(file))
                file.close()
            self._disk.of(name, "rows").wait()
        return {key: self._disk.of(name, "rows").data for key, name in program.results.items()}

    # -- parts -----------------------------------------------------------------------------------

    def _by_columns(self, op: Run) -> StoredTensor:
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
        op: Run,
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

    def _sums_of(self, op: Run) -> dict[str, StoredTensor]:
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

    def _whole(self, op: Run, layout: Layout) -> StoredTensor:
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
