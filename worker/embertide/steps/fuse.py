"""Runs of steps that are executed as one, so that what is between them never exists as a tensor.

A sum, the product behind it, a bias and an activation are one pass: a row is finished while it is
in the cache. Only names that one step reads, and nobody asks for, may disappear.
"""

from __future__ import annotations

from embertide.steps.base import Leader, Step
from embertide.steps.program import Program
from embertide.steps.run import Product, Run


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
    leader, rest = program.steps[at], list(program.steps[at + 1 :])
    if not isinstance(leader, Leader):
        return Run((leader,))
    taken: list[Step] = [leader]

    def follows() -> Step | None:
        """The next step, if it alone reads what is made so far."""
        return rest[0] if rest and program.feeds_only(taken[-1], rest[0]) else None

    def take() -> None:
        taken.append(rest.pop(0))

    product: Product | None = None
    if leader.takes_product and (step := follows()) and step.product:
        product = step.product
        take()
    multiplied = product or leader.product
    shift = multiplied.bias if multiplied else None
    if shift is None and (step := follows()) and step.added:
        shift = step.added
        take()
    activation = None
    if (step := follows()) and step.row_activation:
        activation = step.row_activation
        take()
    reader = follows()
    if not (isinstance(reader, Leader) and reader.scales_sources):
        reader = None
    return Run(tuple(taken), leader, product, shift, activation, reader)
