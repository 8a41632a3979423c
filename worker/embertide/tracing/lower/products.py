"""Messages that are products: a row of the source, factors of both ends, the edge's weight.

Such a message is a sum over edges whose factors come before and after it, so that neither end's
factors travel: GCN's ``norm`` as a module computes it itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.constants import uniform
from embertide.tracing.record.roles import filled_with, is_weight
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node

_MUL = ("mul", "multiply", "__mul__", "__rmul__")
_SAME = (
    *("view", "reshape", "flatten", "unsqueeze", "squeeze", "expand_as", "expand"),
    *("to", "float", "double", "type_as", "contiguous", "clone", "detach"),
)


@dataclass
class Product:
    """The factors of a message.

    Attributes:
        sources, targets: tensors of nodes whose rows at the ends are multiplied.
        factor: all numbers together.
        weighted: whether the edge's weight multiplies them.
        loop_weight: what new self-loops have of it.
    """

    sources: list[Node] = field(default_factory=list)
    targets: list[Node] = field(default_factory=list)
    factor: float = 1.0
    weighted: bool = False
    loop_weight: float = 1.0


def product_of(message: Node) -> Product | None:
    """The factors of a message, each a number for an edge or as wide as it; None for others."""
    product = Product()
    for leaf in _leaves(message, _width(message)):
        match leaf:
            case Node(op="source"):
                product.sources.append(leaf.args[0])
            case Node(op="target"):
                product.targets.append(leaf.args[0])
            case Node() if is_weight(leaf) and not product.weighted:
                product.weighted, product.loop_weight = True, float(filled_with(leaf))
            case int() | float():
                product.factor *= leaf
            case _:
                return None
    return product if product.sources else None


def lower_product(
    low: Lowering, product: Product, mean: bool, view: View, scope: Called | None
) -> NodeRows:
    """Sources multiplied, summed over edges, and multiplied at their ends."""
    source, target = low.types.ends(view.relation)
    with low.b.of_type(source):
        x = _multiplied(low, product.sources)
    low.begin(scope)
    with low.over(view.relation):
        total = low.b.aggregate(
            x,
            norm="in" if mean else "none",
            loops=view.loops_of(product.weighted),
            loop_weight=product.loop_weight,
            edge_weight=product.weighted,
        )
    with low.b.of_type(target):
        return NodeRows(_multiplied(low, product.targets, total), product.factor)


def _multiplied(low: Lowering, nodes: Sequence[Node], total: str = "") -> str:
    """The product of tensors, each with one column or as many as the widest.

    Args:
        total: a sum over edges, if there is one; where it is zero the result is, whatever the
            factors are of nodes without edges: one divided by a degree of zero.
    """
    names = [total] if total else []
    names += [low.name(low.rows(node, low.values.get(node))) for node in nodes]
    if len(names) == 1:
        return names[0]
    lines, last = list[str](), "x0"
    for at in range(1, len(names)):
        lines.append(f"v{at} = mul({last}, x{at})")
        last = f"v{at}"
    width = max(low.b.widths[name] for name in names)
    if total:
        lines += ["some = ne(x0, 0.0)", f"out = where(some, {last}, 0.0)"]
    else:
        lines[-1] = lines[-1].replace(last, "out", 1)
    return low.b.row_wise(tuple(names), tuple(lines), (), width)


def _leaves(value: Any, width: int) -> Iterator[Any]:
    """What is multiplied; None for what is no factor."""
    if isinstance(value, Tensor):
        value = float(value) if value.dim() == 0 else uniform(value)
    if not isinstance(value, Node):
        yield value
    elif _width(value) not in (1, width) or not value.edges:
        yield None
    elif value.op in _MUL and len(value.args) == 2:
        for factor in value.args:
            yield from _leaves(factor, width)
    elif value.op in _SAME and isinstance(value.args[0], Node) and _keeps(value):
        yield from _leaves(value.args[0], width)
    else:
        yield value


def _keeps(node: Node) -> bool:
    """Whether it leaves the numbers of a row, or repeats the only one."""
    before = node.args[0]
    return len(before.value) == len(node.value) and _width(before) in (1, _width(node))


def _width(node: Node) -> int:
    """Numbers in a row."""
    return int(node.value[:1].numel()) if isinstance(node.value, Tensor) else 0
