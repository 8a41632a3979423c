"""Records reductions over all rows, of nodes or of edges, and puts the results beside rows.

A reduction over the edges of a relation is one over each node's in-edges, and then one over all
nodes of their type; the number of edges is a sum of degrees. So one step serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from embertide.program.steps import Statistic
from embertide.tracing.record.counts import Count
from embertide.tracing.record.node_statistics import (
    BESIDE_ROWS,
    ON_STATISTICS,
    Reduction,
    is_shape_for_rows,
    over_nodes,
    reduction_of,
)
from embertide.tracing.record.operations import DECIDES, SAME_WAY
from embertide.tracing.record.protocols import EdgeSums, Recorder
from embertide.tracing.record.traced import Traced, plain, traced_in, viewed
from embertide.tracing.record.user_code import here, refuse


def over_all(tape: Recorder, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function gives that reduces all rows, or that is called with what one gave.

    Returns:
        A row for each node; None for other calls.

    Raises:
        ModelError: a function of a statistic alone is not known.
    """
    passed = list(traced_in((args, tuple(kwargs.values()))))
    x = passed[0]
    if x is args[0] and not x.node.whole and len(passed) == 1:
        reduction = reduction_of(op, args, kwargs)
        rows = None if reduction is None else _rows_of(tape, x)
        if reduction is not None and rows is not None:
            with _parts(tape):
                reduced = rows.reduced(x, reduction)
            return _named(tape, reduction, reduced)
        if op == "softmax" and _dim_of(args, kwargs) == 0 and (rows := _rows_of(tape, x)):
            return _softmax(rows, x)
    if not all(tensor.node.whole for tensor in passed):
        return None
    if is_shape_for_rows(op, x.node.value, args[1:]):
        return x
    if _is_column(op, x, args):
        return viewed(x, [*x.node.value.shape[1:], 1])
    if op in DECIDES:
        raise refuse(here(), DECIDES[op] + SAME_WAY)
    if op == "__getitem__":
        raise refuse(
            here(),
            "columns of a statistic over all nodes or edges are not known by number; take them"
            " before, of the rows: x[:, :3].mean(0)",
        )
    if op not in ON_STATISTICS:
        raise refuse(
            here(),
            f"{op} of a statistic over all nodes or edges is not known; known are sums, products,"
            " activations and Linear, before it is put beside their rows",
        )
    return None


def _is_column(op: str, x: Traced, args: tuple[Any, ...]) -> bool:
    """Whether a statistic becomes a column, for a product with rows."""
    turned = op in ("T", "t", "mT") and x.node.value.dim() == 2
    return turned or (op == "unsqueeze" and args[1:] == (-1,))


@contextmanager
def _parts(tape: Recorder) -> Iterator[None]:
    """Within it, what is recorded are parts of a statistic."""
    before, tape.in_statistic = tape.in_statistic, True
    try:
        yield
    finally:
        tape.in_statistic = before


def beside_rows(tape: Recorder, op: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a function, statistics among them as rows of what they stand beside."""
    if op not in BESIDE_ROWS:
        return args
    args = tuple(_number(tape, arg) if isinstance(arg, Count) else arg for arg in args)
    traced = [arg for arg in args if isinstance(arg, Traced)]
    others = [arg for arg in traced if not arg.node.whole]
    if len(traced) < 2 or len(others) == len(traced):
        return args
    most = max(others or traced, key=lambda arg: arg.node.value.dim())
    return tuple(
        _beside(tape, arg, most) if isinstance(arg, Traced) and arg.node.whole else arg
        for arg in args
    )


def _number(tape: Recorder, count: Count) -> Any:
    """How many nodes or edges there are, as a statistic; a number that was computed as it is."""
    rows = None if count.rows is None else _rows_of(tape, count.rows)
    if rows is None:
        return count
    with _parts(tape):
        return rows.number()


def _beside(tape: Recorder, statistic: Traced, other: Traced) -> Traced:
    """A statistic as rows of another tensor, with as many dimensions."""
    rows: Any = statistic
    if other.node.edges:
        along = tape.edges_of(other)
        if along is None:
            return statistic
        at_source = along.ends[0] == statistic.node.of != along.ends[1]
        rows = along.source(rows) if at_source else along.target(rows)
    value = rows.node.value
    columns = [] if value[0].numel() == 1 else list(value.shape[1:])
    missing = other.dim() - 1 - len(columns)
    if missing < 0 or rows.dim() == other.dim():
        return rows  # type: ignore[no-any-return]
    return viewed(rows, [1] * missing + columns)


def _dim_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The dimension of a softmax."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return None if type(dim) is not int else dim % args[0].dim()


def _softmax(rows: _OfNodes | _OfEdges, x: Any) -> Any:
    """Each column's shares over all rows."""
    raised: Any = (x - rows.reduced(x, Reduction("max"))).exp()
    return raised / rows.reduced(raised, Reduction("sum"))


def _named(tape: Recorder, reduction: Reduction, reduced: Any) -> Any:
    """The result as torch returns it: the largest values, and where they are beside them."""
    if not reduction.places:
        return reduced
    places = tape.wrap(
        tape.add(f"arg{reduction.of}", (reduced,), {}, torch.zeros_like(plain(reduced)))
    )
    return torch.return_types.max((reduced, places))


def _rows_of(tape: Recorder, x: Traced) -> _OfNodes | _OfEdges | None:
    """What is reduced; None where it is not one row for each node or edge."""
    if not x.node.edges:
        counted = x.shape[:1] == (tape.counts.get(x.node.of),)
        return _OfNodes(tape, x) if counted else None
    along = tape.edges_of(x)
    return None if along is None or len(x) != len(along.own.src) else _OfEdges(tape, along)


class _OfNodes:
    """Reductions over all nodes of a type."""

    def __init__(self, tape: Recorder, x: Traced) -> None:
        self.tape, self.x = tape, x

    def reduced(self, x: Any, of: Reduction) -> Any:
        """A row for each node; [N, 1] of all values."""
        if not of.every:
            return self.extreme_or_sum(x, of.of, of.correction)
        if of.of in ("mean", "sum", "max", "min"):
            return self.extreme_or_sum(_each_row(x, of.of), of.of)
        return _of_squares(self, x, of)

    def extreme_or_sum(self, x: Any, of: Statistic, correction: int = 0) -> Any:
        """One step's statistic."""
        return _step(self.tape, x, of, correction)

    def number(self) -> Any:
        """[N, 1] how many rows there are."""
        first: Any = self.x.flatten(1)[:, :1] if self.x.dim() > 1 else self.x.view(-1, 1)
        return self.extreme_or_sum(torch.ones_like(first), "sum")


class _OfEdges:
    """Reductions over all edges of a relation, as a module has changed them."""

    def __init__(self, tape: Recorder, edges: EdgeSums) -> None:
        self.tape, self.edges = tape, edges

    def reduced(self, x: Any, of: Reduction) -> Any:
        """A row for each node of the destination type; [N, 1] of all values."""
        if of.of in ("var", "std", "norm"):
            return _of_squares(self, x, of)
        each = _each_row(x, of.of) if of.every else x
        if of.of == "mean":
            return _divided(self.extreme_or_sum(each, "sum"), self.number())
        return self.extreme_or_sum(each, of.of)

    def extreme_or_sum(self, x: Any, of: Statistic, _correction: int = 0) -> Any:
        """Over the in-edges of each node, then over all nodes."""
        several = x if x.dim() > 1 else x.view(-1, 1)
        if of == "sum":
            return _step(self.tape, self.edges.total(several), of)
        count: Any = self.edges.degree("in")
        extremes = self.edges.aggregate(several, "max" if of == "max" else "min", None)
        return _step(self.tape, extremes, of, count=count.view(-1, 1))

    def number(self) -> Any:
        """[N, 1] how many edges there are."""
        degrees: Any = self.edges.degree("in")
        return _step(self.tape, degrees.view(-1, 1), "sum")


def _step(tape: Recorder, x: Any, of: Statistic, correction: int = 0, count: Any = None) -> Traced:
    """A statistic that one step makes of the rows of nodes."""
    value = over_nodes(plain(x), of, correction, None if count is None else plain(count))
    return tape.wrap(tape.add("over_nodes", (of, correction, x, count), {}, value))


def _each_row(x: Any, of: Statistic) -> Any:
    """[n, 1] of each row's values first."""
    row = x.flatten(1) if x.dim() > 1 else x.view(-1, 1)
    if row.shape[1] == 1:
        return row
    if of in ("max", "min"):
        return row.amax(1, keepdim=True) if of == "max" else row.amin(1, keepdim=True)
    return row.mean(1, keepdim=True) if of == "mean" else row.sum(1, keepdim=True)


def _of_squares(rows: _OfNodes | _OfEdges, x: Any, of: Reduction) -> Any:
    """A norm, or what squared differences from the mean come to."""
    columns = x.node.value[0].numel() if of.every else 1
    apart = x
    if of.of != "norm":
        apart = x - rows.reduced(x, Reduction("mean", of.every))
    squares: Any = apart * apart
    total = rows.extreme_or_sum(_each_row(squares, "sum") if of.every else squares, "sum")
    if of.of != "norm":
        count: Any = rows.number()
        total = _divided(total, count * float(columns) - float(of.correction))
    return total if of.of == "var" else total.sqrt()


def _divided(total: Any, count: Any) -> Any:
    """Both stand for a row of each node."""
    return total / viewed(count, [1] * (total.dim() - 1))
