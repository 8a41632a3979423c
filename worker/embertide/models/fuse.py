"""Runs of steps that are executed as one, so that what is between them never exists as a tensor.

A sum, the product behind it, a bias and an activation are one pass: a row is finished while it is
in the cache. Only names that one step reads, and nobody asks for, may disappear.
"""

from __future__ import annotations

from dataclasses import dataclass

from embertide.models.order import feeds_only
from embertide.models.program import Activation, Affine, Aggregate, Linear, Program, Step

FUSIBLE = ("relu", "leaky_relu", "elu")
"""Activations that can be applied to a row as it is written."""


@dataclass(frozen=True)
class Run:
    """Consecutive steps: a sum, or a product, or both, then what is done to each row.

    Attributes:
        steps: all of them, in order.
        aggregate: the sum or maximum, if any.
        linear: the product, if any.
        shift: the bias, if any, by the name of its parameter.
        activation: the last step, if it is one.
        reader: the sum that alone reads the result, if the next step is one whose norm has
            factors of sources: the run may multiply them to its rows, and so once per node.
    """

    steps: tuple[Step, ...]
    aggregate: Aggregate | None = None
    linear: Linear | None = None
    shift: str | None = None
    activation: Activation | None = None
    reader: Aggregate | None = None

    @property
    def x(self) -> str:
        """The tensor that the run reads."""
        first = self.aggregate or self.linear
        assert first is not None
        return first.x

    @property
    def out(self) -> str:
        """The tensor that the run makes."""
        return self.steps[-1].out


def runs(program: Program) -> list[Run]:
    """All steps in order; those that are fused with none are runs of their own."""
    found, at = [], 0
    while at < len(program.steps):
        run = _run_at(program, at)
        found.append(run)
        at += len(run.steps)
    return found


def _run_at(program: Program, at: int) -> Run:
    """The longest run that starts with a step."""
    rest = list(program.steps[at:])
    taken: list[Step] = [rest.pop(0)]

    def follows(step: Step) -> bool:
        return feeds_only(program, taken[-1], step)

    aggregate = taken[0] if isinstance(taken[0], Aggregate) else None
    linear = taken[0] if isinstance(taken[0], Linear) else None
    if aggregate and rest and isinstance(rest[0], Linear) and follows(rest[0]):
        linear = rest[0]
        taken.append(rest.pop(0))
    if not aggregate and not linear:
        return Run((taken[0],))
    shift = linear.bias if linear else None
    if rest and _is_bias(rest[0]) and shift is None and follows(rest[0]):
        bias = rest.pop(0)
        assert isinstance(bias, Affine)
        shift = bias.shift
        taken.append(bias)
    activation: Activation | None = None
    if rest and _is_fusible(rest[0]) and follows(rest[0]):
        activated = rest.pop(0)
        assert isinstance(activated, Activation)
        activation = activated
        taken.append(activation)
    reader = rest[0] if rest and _scales_sources(rest[0]) and follows(rest[0]) else None
    assert reader is None or isinstance(reader, Aggregate)
    return Run(tuple(taken), aggregate, linear, shift, activation, reader)


def _is_bias(step: Step) -> bool:
    return isinstance(step, Affine) and step.scale is None


def _scales_sources(step: Step) -> bool:
    return isinstance(step, Aggregate) and step.norm not in ("none", "in")


def _is_fusible(step: Step) -> bool:
    return isinstance(step, Activation) and step.kind in FUSIBLE
