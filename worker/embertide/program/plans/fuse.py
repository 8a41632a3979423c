"""Steps that are executed as one operation, so that tensors between them never exist.

A sum, the product after it, a bias and an activation are one pass: a row is finished while it is
in the cache. In a sum of products each product is added to those before it (`chains`), and the
last one finishes the rows. Only tensors that one step reads, and that are no result, may disappear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from embertide.program.plans.plan import Plan
from embertide.program.steps.base import Leader, Step
from embertide.program.steps.op import Op, Product
from embertide.program.steps.program import Program


def fuse(plan: Plan) -> Plan:
    """All steps as operations; a step that is fused with no other is an operation by itself."""
    program = plan.program
    ops, at, links = [], 0, chains(program)
    while at < len(program.steps):
        op = _op_at(program, at, links, multiplies=not plan.target.panel)
        if plan.target.sampled:
            # The graph whose factors these are is not there before the reader's own layer.
            op = replace(op, reader=None)
        ops.append(op)
        at += len(op.steps)
    return replace(plan, ops=tuple(ops))


@dataclass(frozen=True)
class Link:
    """A term of a sum of products.

    Attributes:
        onto: the term before it; None for the first.
        total: the step that adds all terms, if this is the last of them.
    """

    onto: str | None
    total: Step | None


def chains(program: Program) -> dict[str, Link]:
    """Name of the tensor -> products that are added to each other in place.

    The first term of a sum may come from any step; each of the others is a product. The step that
    adds them all follows the last one.
    """
    numbers = {step.out: at for at, step in enumerate(program.steps)}
    links: dict[str, Link] = {}
    for at, total in enumerate(program.steps):
        parts = sorted(total.summed, key=lambda name: numbers.get(name, -1))
        makers = [program.steps[numbers[name]] for name in parts if name in numbers]
        if (
            len(parts) < 2
            or len(makers) < len(parts)
            or makers[-1].out != program.steps[at - 1].out
        ):
            continue
        if all(step.product for step in makers[1:]) and all(
            program.feeds_only(step, total) for step in makers
        ):
            ontos = [None, *parts[:-1]]
            totals = [*[None] * (len(parts) - 1), total]
            links |= dict(zip(parts, map(Link, ontos, totals), strict=True))
    return links


def _op_at(program: Program, at: int, links: dict[str, Link], *, multiplies: bool) -> Op:
    """The longest operation that starts with a step.

    Args:
        multiplies: sums may be multiplied as they are made, which takes all their columns.
    """
    leader, rest = program.steps[at], list(program.steps[at + 1 :])
    if not isinstance(leader, Leader):
        return Op((leader,))
    taken: list[Step] = [leader]

    def follows() -> Step | None:
        """The next step, if it is the only reader of the last tensor."""
        return rest[0] if rest and program.feeds_only(taken[-1], rest[0]) else None

    def take() -> None:
        taken.append(rest.pop(0))

    product: Product | None = None
    if multiplies and leader.takes_product and (step := follows()) and step.product:
        product = step.product
        take()
    multiplied, link = product or leader.product, links.get(taken[-1].out)
    if link and link.total:
        take()
    shift = multiplied.bias if multiplied else None
    if shift is None and (step := follows()) and step.added:
        shift = step.added
        take()
    activation = None
    if (step := follows()) and step.row_activation:
        activation = step.row_activation
        take()
    # It may be in the next layer: only steps read the output of a layer.
    reader = rest[0] if rest and program.only_reader(rest[0], taken[-1].out) else None
    if not (isinstance(reader, Leader) and reader.scales_sources):
        reader = None
    onto = link.onto if link else None
    part = link is not None and link.total is None
    return Op(tuple(taken), leader, product, shift, activation, reader, onto, part)
