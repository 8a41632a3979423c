"""Sums, differences and products of tensors, numbers and parameters, as steps.

A number that multiplies a tensor waits until the tensor is used: a weighted sum of two is one
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows, Value
from embertide.tracing.record.constants import uniform
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse


def add(low: Lowering, node: Node, a: Any, b: Any, alpha: float = 1) -> Value:
    """a + alpha * b."""
    if not isinstance(a, NodeRows):
        if alpha != 1:
            raise refuse(node.where, "add with alpha of a constant; multiply it first")
        a, b = b, a
    if isinstance(b, NodeRows):
        return _sum_of(low, node, low.rows(node, a), NodeRows(b.name, b.factor * alpha))
    return _shifted(low, node, low.rows(node, a), b, alpha)


def sub(low: Lowering, node: Node, a: Any, b: Any, alpha: float = 1) -> Value:
    """a - alpha * b."""
    if isinstance(a, NodeRows):
        return add(low, node, a, b, -alpha)
    return rsub(low, node, b, a)


def rsub(low: Lowering, node: Node, a: Any, b: Any) -> Value:
    """b - a, where b is a constant."""
    return add(low, node, neg(low, node, a), b)


def neg(low: Lowering, node: Node, a: Any) -> NodeRows:
    """-a."""
    rows = low.rows(node, a)
    return NodeRows(rows.name, -rows.factor)


def mul(low: Lowering, node: Node, a: Any, b: Any) -> NodeRows:
    """a * b; of two tensors element by element."""
    if isinstance(a, NodeRows) and isinstance(b, NodeRows):
        _check_widths(low, node, a, b)
        return NodeRows(low.b.elementwise((a.name, b.name), "product"), a.factor * b.factor)
    rows, other = (a, b) if isinstance(a, NodeRows) else (b, a)
    rows = low.rows(node, rows)
    number = _number(other, node)
    if number is not None:
        return NodeRows(rows.name, rows.factor * number)
    scale = _columns(low, node, rows, other)
    if rows.factor == 1.0 and scale.shape == other.shape:
        return NodeRows(low.affine(rows.name, low.constant(other, "scale"), None))
    return NodeRows(low.affine(rows.name, low.derived("scale", scale * rows.factor), None))


def div(low: Lowering, node: Node, a: Any, b: Any) -> NodeRows:
    """a / b, where b is a constant."""
    if not isinstance(a, NodeRows) or isinstance(b, NodeRows):
        raise refuse(node.where, "division by a tensor of nodes is not known here")
    return mul(low, node, a, 1 / b)


def total(low: Lowering, node: Node, parts: Sequence[NodeRows]) -> NodeRows:
    """The sum of several tensors."""
    result = parts[0]
    for part in parts[1:]:
        result = _sum_of(low, node, result, part)
    return result


def _sum_of(low: Lowering, node: Node, a: NodeRows, b: NodeRows) -> NodeRows:
    _check_widths(low, node, a, b)
    if low.means.get(b.name) == a.name and a.factor == -b.factor:
        return NodeRows(low.b.graph_norm(a.name, "none"), a.factor)
    return NodeRows(low.b.combine(a.name, b.name, alpha=a.factor, beta=b.factor))


def _check_widths(low: Lowering, node: Node, a: NodeRows, b: NodeRows) -> None:
    widths = low.b.widths[a.name], low.b.widths[b.name]
    if widths[0] != widths[1] or node.value[0].numel() > widths[0]:
        raise refuse(
            node.where,
            f"{node.op} of tensors of {widths[0]} and {widths[1]} columns is not known here; give"
            " both the same columns",
        )


def _shifted(low: Lowering, node: Node, rows: NodeRows, other: Any, alpha: float) -> NodeRows:
    number = _number(other, node)
    if number == 0:
        return rows
    name = low.name(rows)
    if number is not None:
        shift = torch.full((low.b.widths[name],), number * alpha, dtype=torch.float64)
        return NodeRows(low.affine(name, None, low.derived("shift", shift)))
    shift = _columns(low, node, rows, other)
    if alpha == 1 and shift.shape == other.shape:
        return NodeRows(low.affine(name, None, low.constant(other, "shift")))
    return NodeRows(low.affine(name, None, low.derived("shift", shift * alpha)))


def _number(value: Any, node: Node) -> float | None:
    """A constant that is one number, or the same one in every row."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, Tensor) and value.dim() == node.value.dim() and len(value) > 1:
        return uniform(value)
    return None


def _columns(low: Lowering, node: Node, rows: NodeRows, constant: Any) -> Tensor:
    """A constant as one number for each column of a row; ``node`` has the whole shape."""
    if not isinstance(constant, Tensor):
        raise refuse(node.where, f"{node.op} with a {type(constant).__name__} is not known here")
    shape, whole = constant.shape, node.value.shape
    if len(shape) == len(whole) and shape[0] != 1:
        raise refuse(
            node.where,
            f"a constant of shape {list(shape)} has a row for each node of one graph; it must not"
            " depend on the graph: what differs by node belongs to its features",
        )
    columns = constant.expand(1, *whole[1:]).reshape(-1)
    if len(columns) != low.b.widths[rows.name]:
        raise refuse(node.where, f"a constant of shape {list(shape)} makes rows wider")
    return columns
