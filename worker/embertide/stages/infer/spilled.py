"""Layers whose tensors are on disk: each operation brings parts of them to memory, one at a time.

A sum over edges takes a panel, some columns of all rows; a function of rows takes a block, all
columns of some rows. A part is run by the same code as a whole tensor, so that the bits are those
of a run in memory. The next part is read and the last one written while one is computed. Features
are put in the order of their nodes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from embertide.kernels.disk_threads import DiskThreads
from embertide.kernels.scratch import Scratch, ScratchTensor
from embertide.layouts import Layout, Shard
from embertide.plans.plan import Plan
from embertide.plans.spill import block_rows, panel_columns, parts_of
from embertide.steps.execution import Execution
from embertide.steps.run import Run


@dataclass
class SpilledLayers:
    """Runs the operations of a plan, with all tensors of nodes on disk.

    Attributes:
        files: name of a tensor -> where it is; those that later operations read.
    """

    execution: Execution
    plan: Plan
    scratch: Scratch
    files: dict[str, ScratchTensor] = field(default_factory=dict)

    def begin(self) -> None:
        """Put the features in order. Collective: every rank must call."""
        for name in self.plan.program.inputs.values():
            tensors = self.execution.tensors
            if tensors.is_loaded(name):
                loaded = self.scratch.of(tensors.loaded(name).data)
                self._add(name, self._landed(name, loaded))
                tensors.loaded(name).release()
                loaded.close()
            else:
                shard = tensors.current(name)
                assert shard is not None, f"features {name!r} are neither loaded nor in order"
                self.files[name] = self.scratch.of(shard.data)

    def run(self, op: Run) -> None:
        """Make an operation's result; frees what no later one reads.

        Collective: every rank must call.
        """
        tensors, out = self.execution.tensors, self._new(op.out)
        if parts_of(op) == "columns":
            self._by_columns(op, out)
        else:
            self._by_rows(op, out)
        for name in {*op.frees, *filter(None, [op.onto])} & self.files.keys():
            self.files.pop(name).close()
        if op.onto is not None:
            tensors.take(op.onto)
        tensors.keep(op.out, Shard(op.layout, out.data, out.width))
        self.files[op.out] = out

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> [N/(P*M), D'] its values, mapped from the disk."""
        program = self.plan.program
        for name in dict.fromkeys(program.results.values()):
            file = self.files[name]
            if file.panel < file.width:
                self._add(name, self._as_rows(file))
                file.close()
        return {key: self.files[name].data for key, name in program.results.items()}

    # -- parts -----------------------------------------------------------------------------------

    def _by_columns(self, op: Run, out: ScratchTensor) -> None:
        """A panel of all inputs at a time, which gives the same columns of the result."""
        (read,) = op.inputs
        panels = list(_columns(out.width, self.plan.target.panel))
        with DiskThreads() as disk:
            parts = disk.ahead(_panels(self.files[read.name], panels), after_writes=True)
            for columns in panels:
                values = self._some_columns(op, columns, next(parts))
                disk.write(partial(out.write_columns, columns.start), values)
                del values

    def _some_columns(self, op: Run, columns: slice, x: torch.Tensor) -> torch.Tensor:
        """The columns of the result that are made of the same ones of its input."""
        (read,), width = op.inputs, columns.stop - columns.start
        part = self._of_width(width, read.name, op.out)
        shards = {read.name: Shard(_held(read.layout), x, width)}
        del x
        tensors = part.tensors.part(part.program, shards, columns)
        # What is summed goes as the sum is done with it.
        del shards
        return op.lower(replace(part, tensors=tensors)).data

    def _by_rows(self, op: Run, out: ScratchTensor) -> None:
        """Some rows of all inputs at a time, which give the same rows of the result."""
        program, execution = self.plan.program, self.execution
        layouts = {read.name: _held(read.layout) for read in op.inputs}
        spans = list(_spans(out.rows, block_rows(self.plan, op)))

        def read(first: int, last: int) -> dict[str, torch.Tensor]:
            return {name: self.files[name].read_rows(first, last) for name in layouts}

        with DiskThreads() as disk:
            parts = disk.ahead(partial(read, *span) for span in spans)
            for (first, last), rows in zip(spans, parts, strict=True):
                shards = {
                    name: Shard(layouts[name], values, program.widths[name])
                    for name, values in rows.items()
                }
                tensors = execution.tensors.part(program, shards)
                part = replace(execution, tensors=tensors, span=slice(first, last))
                disk.write(partial(out.write_rows, first), op.lower(part).data)

    def _landed(self, name: str, loaded: ScratchTensor) -> ScratchTensor:
        """Features in the order of their nodes, panel by panel.

        Collective: every rank must call.
        """
        out = self._new(name)
        panels = list(_columns(out.width, self.plan.target.panel))
        with DiskThreads() as disk:
            parts = disk.ahead(_panels(loaded, panels), after_writes=True)
            for columns in panels:
                values = self._landed_columns(name, columns, next(parts))
                disk.write(partial(out.write_columns, columns.start), values)
                del values
        return out

    def _landed_columns(self, name: str, columns: slice, x: torch.Tensor) -> torch.Tensor:
        width = columns.stop - columns.start
        tensors = self.execution.tensors.part_loaded(self._of_width(width, name).program, name, x)
        del x
        return tensors.land(name, None, layout="rows", width=width, layer=0).data

    def _as_rows(self, file: ScratchTensor) -> ScratchTensor:
        """A tensor of panels as one whose rows are whole."""
        out = self.scratch.empty(file.rows, file.width)
        spans = list(file.blocks(file.width))
        with DiskThreads() as disk:
            parts = disk.ahead(partial(file.read_rows, *span) for span in spans)
            for (first, _), rows in zip(spans, parts, strict=True):
                disk.write(partial(out.write_rows, first), rows)
        return out

    # -- files -----------------------------------------------------------------------------------

    def _new(self, name: str) -> ScratchTensor:
        start, stop = self.execution.ranges_of(name).worker(self.execution.grid.rank)
        panel = panel_columns(self.plan, name)
        return self.scratch.empty(stop - start, self.plan.program.widths[name], panel)

    def _add(self, name: str, file: ScratchTensor) -> None:
        self.files[name] = file
        self.execution.tensors.restore({name: Shard("rows", file.data, file.width)}, frees=())

    def _of_width(self, width: int, *names: str) -> Execution:
        """The execution of a program in which some tensors have so many columns."""
        program = self.plan.program
        widths = program.widths | dict.fromkeys(names, width)
        return replace(self.execution, program=replace(program, widths=widths))


def _held(layout: str) -> Layout:
    return "tile" if layout == "tile" else "rows"


def _columns(width: int, panel: int) -> Iterator[slice]:
    for start in range(0, width, panel):
        yield slice(start, min(start + panel, width))


def _panels(file: ScratchTensor, panels: Iterable[slice]) -> Iterator[Callable[[], torch.Tensor]]:
    """What reads each of some panels."""
    return (partial(file.read_columns, of.start, of.stop) for of in panels)


def _spans(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """First and last of the rows of each block; a rank without rows has one, too."""
    for first in range(0, max(1, rows), step):
        yield first, min(first + step, rows)
