"""Functions of rows as text: a short list of torch's operations, read and run by us.

One operation a line, ``name = operation(arguments)``; arguments are earlier names, numbers, texts
and lists of them. Every value has a row for each node (or edge) in dimension 0, which no
operation may touch, so a program's rows never mix: what a line does to some rows does not depend
on which others are computed beside them. Nothing but these operations is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.footprint import FLOAT_BYTES
from embertide.kernels.ghosts import is_ghost
from embertide.program.steps.row_functions import FUNCTIONS, RowError

RESULT = "out"
"""The name of the result."""
_TRIED = (3, 5)
"""Numbers of rows that shapes are tried with: what fits both depends on neither."""

_LONGEST_LINE = 1000


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
