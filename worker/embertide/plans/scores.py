"""Products that are made for the scores of heads alone: (x W) a = x (W a), which is narrower.

Attention between two node types projects all its targets and reads nothing of them but a number
for each head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from embertide.plans.plan import Plan
from embertide.steps import HeadDot, Linear, Program, Step


def narrow_scores(plan: Plan) -> Plan:
    """Without products that only scores are made of; these are made of their inputs."""
    return plan.ordered(_narrow(plan.program))


def _narrow(program: Program) -> Program:
    kept = {*program.results.values(), *program.outputs}
    scores = {
        step.out: found
        for step in program.steps
        if isinstance(step, Linear) and step.out not in kept and (found := _scores(program, step))
    }
    made = {score.out for found in scores.values() for score in found}
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, Linear) and step.out in scores:
            steps += [
                replace(score, x=step.x, weight=step.weight, bias=step.bias)
                for score in scores[step.out]
            ]
        elif step.out not in made:
            steps.append(step)
    widths = {name: width for name, width in program.widths.items() if name not in scores}
    return replace(program, steps=tuple(steps), widths=widths)


def _scores(program: Program, product: Linear) -> Sequence[HeadDot]:
    """The scores of a product that nothing else reads, if they are fewer than its columns."""
    readers = [step for step in program.steps if product.out in step.reads()]
    scores = [step for step in readers if isinstance(step, HeadDot) and step.weight is None]
    fewer = sum(step.heads for step in scores) < program.widths[product.out]
    return scores if len(scores) == len(readers) and fewer else ()
