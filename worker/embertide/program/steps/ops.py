"""Functions of rows as text: a short list of torch's operations, read and run by us.

One operation a line, ``name = operation(arguments)``; arguments are earlier names, numbers, texts
and lists of them. Every value has a row for each node (or edge) in dimension 0, which no
operation may touch, so a program's rows never mix: what a line does to some rows does not depend
on which others are computed beside them. Nothing but these operations is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from embertide.errors import InputError, ModelError
from embertide.footprint import FLOAT_BYTES
from embertide.kernels.ghosts import is_ghost

RESULT = "out"
"""The name of the result."""
_TRIED = (3, 5)
"""Numbers of rows that shapes are tried with: what fits both depends on neither."""

_LONGEST_LINE = 1000
Sizes = Sequence[int]


@dataclass(frozen=True)
class Operation:
    """A line: names stand in arguments as :class:`_Name`."""

    out: str
    function: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    line: str


@dataclass(frozen=True)
class _Name:
    name: str


@cache
def parse(lines: tuple[str, ...]) -> tuple[Operation, ...]:
    """The operations of some lines.

    Raises:
        ModelError: quotes the line that is none.
    """
    return tuple(_parse_line(line) for line in lines)


def run(lines: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Tensor]:
    """All values after the last line, by name.

    Args:
        values: what lines may read: tensors of rows, and parameters.
    """
    ghosts = [value for value in values.values() if is_ghost(value) and len(value.shape) == 2]
    if ghosts:
        return _ghosts(lines, values, ghosts[0])
    known = dict(values)
    for op in parse(lines):
        known[op.out] = FUNCTIONS[op.function](
            *(_filled(a, known) for a in op.args),
            **{name: _filled(a, known) for name, a in op.kwargs},
        )
    return known


def _ghosts(lines: tuple[str, ...], values: Mapping[str, Any], rows: Any) -> dict[str, Tensor]:
    """What lines make: all that they hold is there at a time."""
    widths = {name: int(one.shape[1]) for name, one in values.items() if is_ghost(one)}
    params = {name: one for name, one in values.items() if not is_ghost(one)}
    shapes = shapes_of(lines, widths, params)
    made = shapes.values - sum(widths.values())
    rows.ledger.need(FLOAT_BYTES * made * rows.shape[0])
    return {
        name: rows.new_empty(rows.shape[0], *shape)
        for name, shape in shapes.shapes.items()
        if name in ("out", "score")
    }


@dataclass(frozen=True)
class RowShapes:
    """Shapes and sizes of the values of lines, for the shapes that they read.

    Attributes:
        shapes: name of a line's value -> the dimensions of one row.
        numbers: the names of values that are numbers, and not truth values.
        values: numbers that are held for a row, all lines together.
    """

    shapes: dict[str, tuple[int, ...]]
    numbers: frozenset[str]
    values: int


def shapes_of(
    lines: tuple[str, ...], rows: Mapping[str, int], params: Mapping[str, Tensor]
) -> RowShapes:
    """Try the lines on a few rows of zeros.

    Args:
        rows: columns of each tensor of rows that lines may read.
        params: what else they may read.

    Raises:
        ModelError: quotes the line that does not fit, or that mixes rows.
    """
    first, second = (_tried(lines, count, rows, params) for count in _TRIED)
    shapes = {}
    for op in parse(lines):
        tried = first[op.out].shape, second[op.out].shape
        counts = tuple(shape[:1] for shape in tried)
        if counts != tuple((count,) for count in _TRIED) or tried[0][1:] != tried[1][1:]:
            raise ModelError(f"{op.line!r} does not give a row for each row")
        shapes[op.out] = tuple(tried[0][1:])
    values = sum(first[name].numel() // _TRIED[0] for name in shapes)
    numbers = frozenset(name for name in shapes if first[name].is_floating_point())
    return RowShapes(shapes, numbers, values + sum(rows.values()))


def width_of(shapes: RowShapes, name: str = RESULT) -> int:
    """Columns of a value that is a tensor of rows.

    Raises:
        ModelError: no line makes it, a row of it has more dimensions than columns, or it is of
            truth values.
    """
    if name not in shapes.shapes:
        raise ModelError(f"no line makes {name!r}")
    if len(shapes.shapes[name]) != 1:
        shape = list(shapes.shapes[name])
        raise ModelError(f"a row of {name!r} has shape {shape}, but must have one dimension")
    if name not in shapes.numbers:
        raise ModelError(f"values of {name!r} must be numbers; `where` makes them of truth values")
    return shapes.shapes[name][0]


def _tried(
    lines: tuple[str, ...], count: int, rows: Mapping[str, int], params: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    # Of one type, whatever parameters are stored in.
    shapes = {name: tuple(param.shape) for name, param in params.items()}
    shapes |= {name: (count, width) for name, width in rows.items()}
    # One number each, which looks like all: torch would import its compiler for tensors on "meta".
    known = {name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}
    for op in parse(lines):
        unknown = [name for name in _names((op.args, op.kwargs)) if name not in known]
        if unknown:
            raise ModelError(f"{op.line!r} reads {unknown[0]!r}, which nothing before it makes")
        if op.out in known:
            raise ModelError(f"{op.line!r} makes {op.out!r}, which is there already")
        try:
            known = run((op.line,), known)
        except RowError as error:
            raise ModelError(f"{op.line!r}: {error}") from None
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"{op.line!r} does not fit: {reason}") from None
    return known


# Parsing.


def _parse_line(line: str) -> Operation:
    if len(line) > _LONGEST_LINE:
        raise ModelError(f"{line[:60]!r}... is longer than {_LONGEST_LINE} characters")
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        raise _no_line(line) from None
    if not (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
    ):
        raise _no_line(line)
    call, function = statement.value, statement.value.func.id
    if function not in FUNCTIONS:
        raise ModelError(f"{line!r}: there is no operation {function!r}")
    if any(keyword.arg is None for keyword in call.keywords):
        raise _no_line(line)
    return Operation(
        out=statement.targets[0].id,
        function=function,
        args=tuple(_argument(arg, line) for arg in call.args),
        kwargs=tuple((str(k.arg), _argument(k.value, line)) for k in call.keywords),
        line=line,
    )


def _argument(node: ast.expr, line: str) -> Any:
    match node:
        case ast.Name(id=name):
            return _Name(name)
        case ast.Constant(value=value) if value is None or type(value) in (bool, int, float, str):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) in (
            int,
            float,
        ):
            return -value  # type: ignore[operator]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return tuple(_argument(part, line) for part in parts)
    raise _no_line(line)


def _no_line(line: str) -> ModelError:
    return ModelError(f"{line!r} is no line of the form name = operation(arguments)")


def _filled(argument: Any, known: Mapping[str, Any]) -> Any:
    """An argument with values for names."""
    if isinstance(argument, _Name):
        return known[argument.name]
    if isinstance(argument, tuple):
        return [_filled(part, known) for part in argument]
    return argument


def _names(argument: Any) -> Sequence[str]:
    if isinstance(argument, _Name):
        return [argument.name]
    if isinstance(argument, tuple):
        return [name for part in argument for name in _names(part)]
    return []


def in_chunks(x: Tensor, limit: int) -> list[slice]:
    """Consecutive rows, at most ``limit`` at a time; of a ghost those that are first."""
    rows = x.shape[0]
    if is_ghost(x):
        return [slice(0, min(limit, rows))]
    return [slice(at, min(at + limit, rows)) for at in range(0, rows, max(1, limit))]


class RowError(ValueError):
    """An operation would mix rows."""


def _within(x: Tensor, dim: Any) -> int:
    """A dimension of a row, counted from the front."""
    if not isinstance(dim, int):
        raise RowError(f"dim is {dim!r}, but must be one number")
    place = dim + x.dim() if dim < 0 else dim
    if not 1 <= place < x.dim():
        raise RowError(f"dim={dim} of {x.dim()} is none of a row's own")
    return place


def _reshape(x: Tensor, sizes: Sizes) -> Tensor:
    # torch does not infer -1 of a tensor without rows, which a worker may have.
    known = prod(size for size in sizes if size != -1)
    sizes = [prod(x.shape[1:]) // known if size == -1 else size for size in sizes]
    return x.reshape(len(x), *sizes)


def _expand(x: Tensor, sizes: Sizes) -> Tensor:
    return x.expand(len(x), *sizes)


def _flatten(x: Tensor) -> Tensor:
    return x.flatten(1)


def _unsqueeze(x: Tensor, dim: int) -> Tensor:
    place = dim + x.dim() + 1 if dim < 0 else dim
    if not 1 <= place <= x.dim():
        raise RowError(f"dim={dim} is before the rows")
    return x.unsqueeze(place)


def _squeeze(x: Tensor, dim: int) -> Tensor:
    return x.squeeze(_within(x, dim))


def _transpose(x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(_within(x, a), _within(x, b))


def _narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(_within(x, dim), start, length)


def _select(x: Tensor, dim: int, index: int) -> Tensor:
    return x.select(_within(x, dim), index)


def _cat(parts: list[Tensor], dim: int) -> Tensor:
    return torch.cat(parts, _within(parts[0], dim))


def _stack(parts: list[Tensor], dim: int) -> Tensor:
    _unsqueeze(parts[0], dim)
    return torch.stack(parts, dim)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.dim() < 2:
        raise RowError("a product needs a row's columns")
    return functional.linear(x, weight, bias)


def _einsum(equation: str, *parts: Tensor) -> Tensor:
    """The first letter of the result is that of the rows, and never summed."""
    terms, _, result = equation.replace(" ", "").partition("->")
    row = result[:1]
    places = [term.find(row) for term in terms.split(",")]
    if not row or "." in equation or not {-1, 0} >= set(places) or 0 not in places:
        raise RowError(f"{equation!r} must have the rows' letter first in the result, and in front")
    return torch.einsum(equation, *parts)


def _layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _normalize(x: Tensor, dim: int, p: float = 2.0, eps: float = 1e-12) -> Tensor:
    return functional.normalize(x, p, _within(x, dim), eps)


def _softmax(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x, _within(x, dim))


def _log_softmax(x: Tensor, dim: int) -> Tensor:
    return torch.log_softmax(x, _within(x, dim))


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduce(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
        return function(x, dim=_within(x, dim), keepdim=keepdim)

    return reduce


def _binary(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def apply(a: Any, b: Any) -> Tensor:
        like = a if isinstance(a, Tensor) else b
        a, b = (v if isinstance(v, Tensor) else _number(v).to(like) for v in (a, b))
        return function(a, b)

    return apply


def _number(value: float) -> Tensor:
    """A number as it is written, not rounded to torch's default type."""
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    return torch.clamp(x, min, max)


def _where(condition: Tensor, a: Any, b: Any) -> Tensor:
    return torch.where(condition, a, b)


def _repeat(value: Tensor, like: Tensor) -> Tensor:
    """A parameter as every row of a tensor that has as many rows as another one."""
    return value.expand(len(like), *value.shape)


def _same(x: Tensor) -> Tensor:
    return x


def _take(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a parameter by their numbers, whole ones in floating point.

    Raises:
        InputError: there is no row of such a number.
    """
    rows = index.long()
    if rows.numel():
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= len(table):
            raise InputError(
                f"a category is {low if low < 0 else high}, but the model knows 0 to"
                f" {len(table) - 1}; clean the features, or train the model again with it"
            )
    return table[rows]


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "same": _same,
    # Element by element.
    **{
        name: getattr(torch, name)
        for name in (
            "abs", "cos", "erf", "exp", "expm1", "log", "log1p", "neg", "reciprocal", "rsqrt",
            "sigmoid", "sign", "sin", "sqrt", "square", "tanh", "logical_not", "floor", "trunc",
        )
    },
    **{
        name: getattr(functional, name)
        for name in (
            "celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
            "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "silu", "softplus", "softsign",
            "tanhshrink",
        )
    },
    **{
        name: _binary(getattr(torch, name))
        for name in (
            "add", "div", "eq", "ge", "gt", "le", "logical_and", "logical_or", "lt", "maximum",
            "minimum", "mul", "ne", "pow", "sub",
        )
    },
    "clamp": _clamp,
    "where": _where,
    # Within a row.
    **{
        name: _reduction(getattr(torch, name))
        for name in ("amax", "amin", "logsumexp", "mean", "prod", "std", "sum", "var")
    },
    "einsum": _einsum,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "log_softmax": _log_softmax,
    "normalize": _normalize,
    "softmax": _softmax,
    "take": _take,
    # Shapes; sizes are those of a row.
    "cat": _cat,
    "expand": _expand,
    "flatten": _flatten,
    "narrow": _narrow,
    "repeat": _repeat,
    "reshape": _reshape,
    "select": _select,
    "squeeze": _squeeze,
    "stack": _stack,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
}  # fmt: skip
"""By the names that lines use: torch's own."""
