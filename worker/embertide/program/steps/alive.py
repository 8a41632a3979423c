"""Which tensors exist, and in which layouts, before each operation: for layouts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import InitVar, dataclass, field

from embertide.layouts import Layout
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.op import Held, Input, Op
from embertide.program.steps.program import Program
from embertide.spec.grid import GridShape


@dataclass
class Alive:
    """The tensors that exist before an operation, or during it.

    Attributes:
        grid: the one that computes the layers.
        in_place: workers read each other's memory.
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
        """Whether a worker reads every row of a tensor, with all columns, in place."""
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
        """The layout from which a tensor is converted to be read; None: it needs no conversion."""
        if read.layout not in ("rows", "tile"):
            return None
        layouts = self.layouts[read.name]
        # With one slice a tile and its rows are the same.
        if read.layout in layouts or ("loaded" not in layouts and self.grid.feature == 1):
            return None
        return layouts[0]

    def convert(self, read: Input) -> None:
        """Add the layout in which a tensor is read; drop the old one if it is not read again."""
        if self.origin(read) is not None:
            layouts = self.layouts[read.name]
            gone = layouts == ("loaded",) or self.dies(read.name)
            self.layouts[read.name] = (*(() if gone else layouts), read.layout)

    def drop(self, name: str) -> None:
        """Remove a tensor."""
        self.layouts.pop(name, None)
        self.sums.discard(name)

    def make(self, op: Op) -> None:
        """Add the sums that an operation brings; it finishes one of them itself."""
        for step in op.brings:
            self.layouts[step.out] = ("sums",)
            self.sums.add(step.out)
        if op.finishes_sums:
            self.drop(op.steps[0].out)

    def end(self, op: Op) -> None:
        """Add the result, and remove what no later operation reads."""
        for name in (*self.frees, *filter(None, [op.onto])):
            self.drop(name)
        self.layouts[op.out] = (op.layout,)
