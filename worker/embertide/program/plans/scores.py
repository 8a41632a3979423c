"""Products that only scores of heads read: (x W) a = x (W a), which is narrower.

Attention between two node types projects all its targets, and reads only a number for each head of
them.
"""

from __future__ import annotations

from dataclasses import replace

from embertide.program.plans.plan import Plan
from embertide.program.steps.base import Step
from embertide.program.steps.program import Program


def narrow_scores(plan: Plan) -> Plan:
    """Compute scores from the inputs of their products, where nothing else reads the products."""
    return plan.ordered(_narrow(plan.program))


def _narrow(program: Program) -> Program:
    kept, narrower = {*program.results.values(), *program.outputs}, dict[str, list[Step]]()
    for step in program.steps:
        if step.product is None or step.out in kept:
            continue
        (x,) = step.reads()
        readers = [reader for reader in program.steps if step.out in reader.reads()]
        others = [other for one in readers if (other := one.of_product(x, step.product))]
        fewer = sum(program.widths[reader.out] for reader in readers) < program.widths[step.out]
        if others and len(others) == len(readers) and fewer:
            narrower[step.out] = others
    replaced = {other.out for others in narrower.values() for other in others}
    steps: list[Step] = []
    for step in program.steps:
        if step.out not in replaced:
            steps += narrower.get(step.out, [step])
    widths = {name: width for name, width in program.widths.items() if name not in narrower}
    return replace(program, steps=tuple(steps), widths=widths)
