"""The order of steps: readers after what they read, and products before or after sums.

A step that is the only reader of another step's tensor follows it as soon as its other inputs are
there: then the two can run as one (:mod:`embertide.program.plans.fuse`), and fewer tensors are
alive.

A normalised sum over in-edges acts on rows, a product on columns, so they commute:
``sum(x @ W.T) == sum(x) @ W.T``, whatever factors and edge weights the sum has. The order decides
how wide the rows are that are summed, and moved between ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embertide.program.plans.plan import Plan
from embertide.program.steps.base import Step
from embertide.program.steps.program import Program, needed_for, reads_together


def keep_readers_close(plan: Plan) -> Plan:
    """Steps on nodes follow what they read."""
    return plan.ordered(replace(plan.program, steps=_closer(plan.program)))


def order_products(plan: Plan) -> Plan:
    """Each product before its sum where that makes rows narrower, else after it."""
    return plan.ordered(_order_products(plan.program, plan.moving_workers))


def _order_products(program: Program, workers: int) -> Program:
    """The program with each product before its sum where that makes rows narrower, else after.

    Rows that several relations sum travel once for all of them, but their products for each, and
    so count that often.

    Where both have the same width the sum comes first: the product then reads sums that are in the
    cache, and adds the bias. The exception is a sum over the input features on several workers:
    there the product comes first, since it sends each row where it belongs, and the sum uses the
    exchange pattern that all other layers use.
    """
    steps, widths = list(program.steps), dict(program.widths)
    for at in range(len(steps) - 1):
        # Read from the list: the first may have changed places with the one before it.
        first, second = steps[at : at + 2]
        pair = _pair(first, second)
        if pair is None or not program.feeds_only(first, second):
            continue
        product, aggregate = pair
        (source,) = first.reads()
        width, out_width = widths[source], widths[second.out]
        if product is first:
            between = width
            free = source not in program.inputs.values() or workers == 1
            better = width < out_width or (width == out_width and free)
            swapped: tuple[Step, Step] = (
                _moved(aggregate, source, first.out),
                _moved(product, first.out, second.out),
            )
        else:
            between = out_width
            better = out_width * _sums_of(program, aggregate) < width
            swapped = (
                _moved(product, source, first.out),
                _moved(aggregate, first.out, second.out),
            )
        if better:
            steps[at : at + 2] = swapped
            widths[first.out] = between
    return replace(program, steps=tuple(steps), widths=widths)


def _closer(program: Program) -> tuple[Step, ...]:
    """All steps; those on nodes directly after the last step that they read.

    They stay within their layers. Steps over edges keep their order: workers send each other rows
    in that order.
    """
    available, steps = set(program.inputs.values()), dict.fromkeys(program.steps)
    ordered: list[Step] = []

    def append(step: Step) -> None:
        ordered.append(step)
        available.add(step.out)
        del steps[step]
        readers = [other for other in steps if step.out in other.reads()]
        if (
            len(readers) == 1
            and _may_follow(step, readers[0])
            and available.issuperset(readers[0].reads())
        ):
            append(readers[0])

    while steps:
        append(next(iter(steps)))
    return tuple(ordered)


def _may_follow(step: Step, reader: Step) -> bool:
    return reader.edges is None and reader.layer == step.layer


def _sums_of(program: Program, aggregate: Step) -> int:
    """How many relations sum the tensor that a step sums, in its layer."""
    view = aggregate.edges
    if view is None or not view.relation:
        return 1
    over_edges = [
        step for step in program.steps if step.commutes and step.reads() == aggregate.reads()
    ]
    views = [step.edges for step in over_edges if step.edges is not None]
    return sum(other.layer == view.layer for other in views)


def _pair(first: Step, second: Step) -> tuple[Step, Step] | None:
    """A product without bias and a sum, in either order; None for other steps."""
    if _is_plain(first) and second.commutes:
        return first, second
    if first.commutes and _is_plain(second):
        return second, first
    return None


def _is_plain(step: Step) -> bool:
    return step.product is not None and step.product.bias is None


def _moved(step: Step, x: str, out: str) -> Step:
    """A step of one input with another input and output."""
    changes: dict[str, Any] = {"x": x, "out": out}
    return replace(step, **changes)


def narrow_scores(plan: Plan) -> Plan:
    """Products that only scores of heads read: (x W) a = x (W a), which is narrower.

    Attention between two node types projects all its targets, and reads only a number for each head
    of them.
    """
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


def gather_needs(plan: Plan) -> Plan:
    """Put all that steps which read the same rows need before the first of them.

    It brings the rows for the others of its layer, too (:func:`reads_together`). Where nothing
    moves, the order stays.
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
