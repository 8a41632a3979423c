"""What is there while operations follow each other: by it layouts are chosen, and costs counted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import InitVar, dataclass, field

from embertide.layouts import Layout
from embertide.spec.grid import GridShape
from embertide.steps.base import EdgeStep
from embertide.steps.program import Program
from embertide.steps.run import Held, Input, Run


@dataclass
class Alive:
    """The tensors that are there before an operation, or during it.

    Attributes:
        grid: the one that computes the layers.
        in_place: workers read each other's tensors where they stand.
        placed: node types whose features are in the order of their ids from the start.
        layouts: name -> all layouts in which a worker holds the tensor.
        frees: the tensors that no later operation reads.
        sums: results of steps over edges, or their sums, that an earlier operation has made.
    """

    program: Program
    grid: GridShape
    in_place: bool
    placed: InitVar[Collection[str]] = ()
    layouts: dict[str, tuple[Held, ...]] = field(default_factory=dict)
    frees: frozenset[str] = frozenset()
    sums: set[str] = field(default_factory=set)

    def __post_init__(self, placed: Collection[str]) -> None:
        for node_type, name in self.program.inputs.items():
            self.layouts[name] = ("rows",) if node_type in placed else ("loaded",)

    @property
    def reads_all(self) -> bool:
        """Whether a worker reads every row of a tensor, with all columns, where it stands."""
        return self.grid.workers == 1 or (self.in_place and self.grid.feature == 1)

    def has(self, name: str, layout: Held) -> bool:
        """Whether the tensor is there in a layout."""
        return layout in self.layouts[name]

    def dies(self, name: str) -> bool:
        """Whether no later operation reads the tensor, so that it may be changed in place."""
        return name in self.frees

    def last_free(self, names: Sequence[str]) -> str | None:
        """The last of some inputs, if it may be changed in place."""
        last = names[-1]
        return last if self.dies(last) and names.count(last) == 1 else None

    def any(self, name: str) -> Layout:
        """The layout in which a tensor is read as it is; loaded features become rows."""
        return "tile" if self.layouts[name][0] == "tile" else "rows"

    def group_of(self, step: EdgeStep, *, travel: bool) -> tuple[EdgeStep, ...]:
        """The steps for which an operation brings rows: none where an earlier one did.

        Args:
            travel: rows do, so that each travels once for all steps that read it.
        """
        if step.out in self.sums:
            return ()
        return self.program.groups[step.out] if travel else (step,)

    def origin(self, read: Input) -> Held | None:
        """The layout from which a tensor is converted to be read; None: it is there."""
        if read.layout not in ("rows", "tile"):
            return None
        held = self.layouts[read.name]
        # With one slice a tile and its rows are the same.
        if read.layout in held or ("loaded" not in held and self.grid.feature == 1):
            return None
        return held[0]

    def convert(self, read: Input) -> None:
        """The tensor is there as it is read, and as it was if that is still read."""
        if self.origin(read) is not None:
            held = self.layouts[read.name]
            gone = held == ("loaded",) or self.dies(read.name)
            self.layouts[read.name] = (*(() if gone else held), read.layout)

    def drop(self, name: str) -> None:
        """The tensor is gone."""
        self.layouts.pop(name, None)
        self.sums.discard(name)

    def make(self, op: Run) -> None:
        """An operation has made what it brings, of which it finishes its own."""
        for step in op.brings:
            self.layouts[step.out] = ("sums",)
            self.sums.add(step.out)
        if op.finishes_sums:
            self.drop(op.steps[0].out)

    def end(self, op: Run) -> None:
        """The result is there, and what no later operation reads is gone."""
        for name in (*self.frees, *filter(None, [op.onto])):
            self.drop(name)
        self.layouts[op.out] = (op.layout,)
