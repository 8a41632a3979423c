"""Steps that are executed as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from embertide.layouts import Layout, Shard
from embertide.steps.reach import Reach

if TYPE_CHECKING:
    from embertide.steps.base import Leader, Step
    from embertide.steps.execution import Execution
    from embertide.steps.walk import Walk


class Product(NamedTuple):
    """x @ params[weight].T (+ params[bias]), of a step of a layer."""

    weight: str
    bias: str | None
    layer: int


class RowActivation(NamedTuple):
    """An activation that can be applied to a row as it is written."""

    kind: str
    slope: float


@dataclass(frozen=True)
class Run:
    """Consecutive steps: one that makes rows, then what is done to each row.

    Attributes:
        steps: all of them, in order.
        leader: the first, if its rows can be finished as they are made; else it runs alone.
        product: the product behind the leader, if it takes one.
        shift: the bias, if any, by the name of its parameter.
        activation: the last step, if it is one.
        reader: the step that alone reads the result, if the next one multiplies what it reads by
            a factor a row: the run may do that instead, and so once per node.
        onto: the tensor that the product is added to, which becomes the result: a sum of several
            products is made in place.
        part: a later run adds to the result, which must be in ``rows``.
    """

    steps: tuple[Step, ...]
    leader: Leader | None = None
    product: Product | None = None
    shift: str | None = None
    activation: RowActivation | None = None
    reader: Leader | None = None
    onto: str | None = None
    part: bool = False

    @property
    def reach(self) -> Reach:
        """What of the other nodes a row of the result needs."""
        return max(step.reach for step in self.steps)

    @property
    def out(self) -> str:
        """The tensor that the run makes."""
        return self.steps[-1].out

    def lower(self, execution: Execution) -> Shard:
        """Our shard of the result. Collective: every rank must call."""
        if self.leader is None:
            return self.steps[0].lower(execution)
        made = self.leader.lower_run(execution, self)
        if self.onto is not None:
            execution.tensors.take(self.onto)
        return made

    def walk(self, walk: Walk) -> Layout:
        """Tell a walk what :meth:`lower` holds and moves; returns the result's layout."""
        if self.leader is None:
            return self.steps[0].walk(walk)
        made = self.leader.walk_run(walk, self)
        if self.onto is not None:
            del walk.alive[self.onto]
        return made
