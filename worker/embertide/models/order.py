"""The order of products and sums: whichever of the two equivalent orders costs less.

A normalised sum over in-edges acts on rows, a product on columns, so they commute:
``sum(x @ W.T) == sum(x) @ W.T``, whatever factors and edge weights the sum has. The order decides
how wide the rows are that are summed, and moved between ranks. Planning and execution walk the
program that comes out of here.
"""

from __future__ import annotations

from dataclasses import replace

from embertide.models.program import Aggregate, Linear, Program, Step


def order_steps(program: Program, workers: int) -> Program:
    """The program with each product before its sum where that makes rows narrower, else behind.

    Of equal widths the sum comes first: the product then reads sums that are in the cache, and
    carries the bias. The exception is a sum over the input features on several workers: there
    the product comes first, since it sends each row where it belongs, and the sum uses the
    exchange pattern that all other layers use.

    Args:
        workers: of the grid.
    """
    steps, widths = list(program.steps), dict(program.widths)
    for at, (first, second) in enumerate(zip(program.steps, program.steps[1:], strict=False)):
        pair = _pair(first, second)
        if pair is None or not feeds_only(program, first, second):
            continue
        product, aggregate = pair
        width, out_width = widths[first.reads()[0]], widths[second.out]
        if product is first:
            between = width
            free = product.x != program.input or workers == 1
            better = width < out_width or (width == out_width and free)
            swapped: tuple[Step, Step] = (
                replace(aggregate, x=product.x, out=first.out),
                replace(product, x=first.out, out=second.out),
            )
        else:
            between = out_width
            better = out_width < width
            swapped = (
                replace(product, x=aggregate.x, out=first.out),
                replace(aggregate, x=first.out, out=second.out),
            )
        if better:
            steps[at : at + 2] = swapped
            widths[first.out] = between
    return replace(program, steps=tuple(steps), widths=widths)


def _pair(first: Step, second: Step) -> tuple[Linear, Aggregate] | None:
    """A product without bias and a sum, in either order; None for other steps."""
    match (first, second):
        case (Linear(bias=None) as product, Aggregate(reduce="sum") as aggregate):
            return product, aggregate
        case (Aggregate(reduce="sum") as aggregate, Linear(bias=None) as product):
            return product, aggregate
    return None


def feeds_only(program: Program, first: Step, second: Step) -> bool:
    """Whether a step's result is read by the next one, once, and by nothing else."""
    reads = [name for step in program.steps for name in step.reads()]
    wanted = first.out == program.output or first.out in program.outputs
    return first.out in second.reads() and reads.count(first.out) == 1 and not wanted
