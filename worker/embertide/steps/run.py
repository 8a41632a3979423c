"""Steps that are executed as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from embertide.layouts import Layout, Shard

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
    """

    steps: tuple[Step, ...]
    leader: Leader | None = None
    product: Product | None = None
    shift: str | None = None
    activation: RowActivation | None = None
    reader: Leader | None = None

    @property
    def out(self) -> str:
        """The tensor that the run makes."""
        return self.steps[-1].out

    def lower(self, execution: Execution) -> Shard:
        """Our shard of the result. Collective: every rank must call."""
        if self.leader is not None:
            return self.leader.lower_run(execution, self)
        return self.steps[0].lower(execution)

    def walk(self, walk: Walk) -> Layout:
        """Tell a walk what :meth:`lower` holds and moves; returns the result's layout."""
        if self.leader is not None:
            return self.leader.walk_run(walk, self)
        return self.steps[0].walk(walk)
