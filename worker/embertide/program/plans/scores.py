"""Products that only scores of heads read: (x W) a = x (W a), which is narrower.

Attention between two node types projects all its targets, and reads only a number for each head of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from embertide.program.plans.plan import Plan
from embertide.program.steps import HeadDot, Linear, Program, Step


def narrow_scores(plan: Plan) -> Plan:
    """Compute scores from the inputs of their products, where nothing else reads the products."""
    return plan.ordered(_narrow(plan.program))


def _narrow(program: Program) -> Program:
    kept = {*program.results.values(), *program.outputs}
    scores = {
        step.out: dots
        for step in program.steps
        if isinstance(step, Linear) and step.out not in kept and (dots := _scores(program, step))
    }
    replaced = {dot.out for dots in scores.values() for dot in dots}
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, Linear) and step.out in scores:
            steps += [
                replace(dot, x=step.x, weight=step.weight, bias=step.bias)
                for dot in scores[step.out]
            ]
        elif step.out not in replaced:
            steps.append(step)
    widths = {name: width for name, width in program.widths.items() if name not in scores}
    return replace(program, steps=tuple(steps), widths=widths)


def _scores(program: Program, product: Linear) -> Sequence[HeadDot]:
    """The scores of a product that nothing else reads, if they are fewer than its columns."""
    readers = [step for step in program.steps if product.out in step.reads()]
    scores = [step for step in readers if isinstance(step, HeadDot) and step.weight is None]
    fewer = sum(step.heads for step in scores) < program.widths[product.out]
    return scores if len(scores) == len(readers) and fewer else ()
