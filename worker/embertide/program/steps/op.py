"""Operations: steps that are executed as one, with what the passes have decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from embertide.layouts import Layout, Shard
from embertide.spec.identity import PLACED

if TYPE_CHECKING:
    from embertide.program.steps.alive import Alive
    from embertide.program.steps.base import EdgeStep, Leader, Step
    from embertide.program.steps.execution import Execution

Held = Layout | Literal["loaded", "sums"]
"""How a worker holds a tensor: in a layout, as it was loaded, or as float32 sums in a tile (or
rows) that their own operation has yet to finish."""


class Reach(IntEnum):
    """How much of the other nodes a step needs for a row of its result.

    From the least that is needed to the most; of several steps the most counts."""

    ROW = 0
    """The same row of what it reads, and numbers of the row's own edges."""
    NEIGHBOURS = 1
    """Rows at the other end of the row's edges."""
    GRAPH = 2
    """A statistic over all rows."""


class Product(NamedTuple):
    """x @ params[weight].T (+ params[bias]), of a step of a layer."""

    weight: str
    bias: str | None
    layer: int


class RowActivation(NamedTuple):
    """An activation that can be applied to a row as it is written."""

    kind: str
    slope: float


class Input(NamedTuple):
    """A tensor that an operation reads.

    Attributes:
        layout: the one in which it is read; where it is in another, it is converted first.
        primitive: what the conversion is counted under: rows under ``gemm``, scores under others.
    """

    name: str
    layout: Held
    primitive: str = "gemm"


@dataclass(frozen=True)
class Op:
    """Consecutive steps that run as one: the first makes rows, the others change each row.

    How it runs (:meth:`lower`) follows from its fields.

    Attributes:
        steps: all of them, in order.
        leader: the first, if its rows can be finished as they are made; else it runs alone.
        product: the product after the leader, if it takes one.
        shift: the bias, if any, by the name of its parameter.
        activation: the last step, if it is one.
        reader: the only step that reads the result, if it is the next one and multiplies its input
            by a factor a row: the operation may do that instead, and so once per node.
        onto: the tensor that the product is added to, which becomes the result: a sum of several
            products is made in place.
        part: a later operation adds to the result, which must be in ``rows``.
        inputs: the tensors that it reads, in the order in which they are converted.
        layout: of the result.
        frees: the tensors that are there and that no later operation reads.
        reuses: the input that is changed into the result.
        brings: steps over edges whose results, or sums, are made here, since the rows that they
            read travel once for all of them; its own among them.
        scales: it multiplies its rows by the factors of sources of ``reader``.
        adds_last: the product is rounded before ``onto`` is added, as products of features are that
            travel to their owners.
    """

    meaning: ClassVar[int] = 1
    """As that of a step, for how steps act as one."""

    steps: tuple[Step, ...]
    leader: Leader | None = None
    product: Product | None = None
    shift: str | None = None
    activation: RowActivation | None = None
    reader: Leader | None = None
    onto: str | None = None
    part: bool = False
    inputs: tuple[Input, ...] = field(default=(), metadata=PLACED)
    layout: Layout = field(default="rows", metadata=PLACED)
    frees: frozenset[str] = field(default=frozenset(), metadata=PLACED)
    reuses: str | None = field(default=None, metadata=PLACED)
    brings: tuple[EdgeStep, ...] = field(default=(), metadata=PLACED)
    scales: bool = field(default=False, metadata=PLACED)
    adds_last: bool = field(default=False, metadata=PLACED)

    @classmethod
    def identity_facts(cls) -> dict[str, object]:
        """See :meth:`Step.identity_facts`."""
        return {"meaning": cls.meaning}

    @property
    def reach(self) -> Reach:
        """How much of the other nodes a row of the result needs."""
        return max(step.reach for step in self.steps)

    @property
    def out(self) -> str:
        """The tensor that it makes."""
        return self.steps[-1].out

    def reads(self, name: str, layout: Held) -> bool:
        """Whether a tensor is read in a layout."""
        return any(name == read.name and layout == read.layout for read in self.inputs)

    @property
    def finishes_sums(self) -> bool:
        """Whether the sums of its first step are made with those of other steps."""
        return bool(self.brings) or self.reads(self.steps[0].out, "sums")

    def placed(
        self,
        inputs: Sequence[Input],
        layout: Layout,
        *,
        reuses: str | None = None,
        brings: Sequence[EdgeStep] | None = None,
    ) -> Op:
        """The operation with its layouts; what a product is added to is rows.

        Args:
            brings: of steps whose rows travel together; () where an earlier operation made ours.
        """
        if brings is not None and not brings:
            inputs = [Input(self.steps[0].out, "sums")]
        onto = [Input(self.onto, "rows")] if self.onto else []
        return replace(
            self,
            inputs=(*inputs, *onto),
            layout=layout,
            reuses=reuses,
            brings=tuple(brings or ()),
            scales=self.reader is not None,
        )

    def place(self, at: Alive) -> Op:
        """The operation with its layouts, where some tensors are there."""
        return self.steps[0].place(self, at)

    def lower(self, execution: Execution) -> Shard:
        """Our shard of the result. Collective: every rank must call."""
        if self.reuses is not None:
            execution.tensors.settle(self.reuses)
        result = self.steps[0].lower(execution, self)
        if self.onto is not None:
            execution.tensors.take(self.onto)
        return result
