"""The order of steps with which rows that several relations read are sent once for all of them.

The first step over edges that reads a tensor brings its rows for the others of its layer, too
(`program/steps/sharing.py`). Other tensors that those steps read, such as queries or scores of
their destination types, are therefore computed before the first, unless they depend on it.
"""

from __future__ import annotations

from dataclasses import replace

from embertide.program.plans.plan import Plan
from embertide.program.steps import Step
from embertide.program.steps.program import needed_for
from embertide.program.steps.sharing import reads_together


def gather_needs(plan: Plan) -> Plan:
    """Put all that steps which read the same rows need before the first of them.

    Where nothing moves, the order stays.
    """
    if plan.moving_workers == 1:
        return plan
    steps = list(plan.program.steps)
    for key in dict.fromkeys(map(reads_together, steps)):
        if key is not None:
            steps = _with_needs_first(steps, key)
    return plan.ordered(replace(plan.program, steps=tuple(steps)))


def _with_needs_first(steps: list[Step], key: tuple[object, ...]) -> list[Step]:
    """The steps with all that a group needs before the first step of the group."""
    first = next(at for at, step in enumerate(steps) if reads_together(step) == key)
    moved: set[str] = set()
    for at in range(first + 1, len(steps)):
        if reads_together(steps[at]) == key:
            needs = needed_for(steps[at].reads(), steps[first:at])
            if all(reads_together(need) != key for need in needs):
                moved.update(need.out for need in needs)
    early = [step for step in steps[first:] if step.out in moved]
    late = [step for step in steps[first:] if step.out not in moved]
    return [*steps[:first], *early, *late]
