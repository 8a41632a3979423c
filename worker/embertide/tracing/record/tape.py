"""What a module does with its inputs, operation by operation, while its ``forward`` runs.

A traced tensor holds numbers and remembers the node that made it, so Python code sees shapes,
types and loops as they are; only what reads the *numbers* is refused, since it could go another
way on the next graph. Tensors that come from no input (parameters, and what is computed from
parameters alone) are constants and leave no nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.counts import counted
from embertide.tracing.record.decomposed import DECOMPOSED, OF_TRUTH, as_numbers, at_steps
from embertide.tracing.record.linear_attention import over_pairs
from embertide.tracing.record.operations import (
    DECIDES,
    IN_PLACE,
    PICKS,
    REDUCES_ALL,
    SAME_WAY,
    SHAPES,
    SHOWN,
    SIZES,
    shown,
)
from embertide.tracing.record.over_all import beside_rows, over_all
from embertide.tracing.record.protocols import EdgeSums, EndsOfEdges
from embertide.tracing.record.roles import OF_NODES, edges_of
from embertide.tracing.record.tables import Beside
from embertide.tracing.record.traced import (
    Node,
    Traced,
    as_nodes,
    is_truth,
    name_of,
    plain,
    traced_in,
)
from embertide.tracing.record.user_code import here, refuse

_TO_EDGES, _TO_NODES = ("source", "target"), ("aggregate", "conv", "degree", "layer", "merge")
"""Operations that take rows of nodes to edges, and back."""


@dataclass
class Tape:
    """All nodes of one run of ``forward``, in order.

    Attributes:
        within: names of the calls of modules that have not returned yet.
        counts: node type -> N.
        ends: does what a module does with an ``edge_index`` and its rows.
        beside: refuses what is read beside a table.
        in_statistic: what is recorded is a part of a statistic over all rows.
    """

    within: Callable[[], tuple[str, ...]] = tuple
    counts: Mapping[str, int] = field(default_factory=dict)
    ends: EndsOfEdges | None = None
    beside: Beside | None = None
    nodes: list[Node] = field(default_factory=list)
    in_statistic: bool = False

    def input(self, role: str, value: Tensor, of: str = "") -> Traced:
        """A tensor that every graph has.

        Args:
            role: ``x``, or of edges ``edge_index``, ``edge_weight``, ``index`` or ``origin``.
            of: its node type or relation.
        """
        return self.wrap(self.add("input", (role, of), {}, value, of))

    def add(
        self,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        value: Any,
        of: str | None = None,
    ) -> Node:
        """Record an operation; traced tensors among its arguments become nodes.

        Args:
            of: what the rows of the result are; without it, what those of the arguments are.

        Raises:
            ModelError: the arguments have rows of several node types, or of several relations.
        """
        node = Node(op, as_nodes(args), as_nodes(kwargs), value, here())
        if self.beside is not None:
            self.beside.check(*node.sources())
        node.number, node.within = len(self.nodes), self.within()
        node.edges = op in _TO_EDGES or (op == "input" and args[0] not in OF_NODES)
        node.edges |= op not in _TO_NODES and any(source.edges for source in node.sources())
        node.of = _common(node) if of is None else of
        sources = node.sources()
        all_whole = bool(sources) and all(source.whole for source in sources)
        node.whole = op == "over_nodes" or (all_whole and not node.edges)
        node.part = self.in_statistic
        node.picked = _picks(op, args) or any(source.picked for source in sources)
        self.nodes.append(node)
        return node

    def wrap(self, node: Node) -> Traced:
        """The tensor that a node made, for the user's code to go on with."""
        with torch._C.DisableTorchFunctionSubclass():
            traced: Traced = torch.Tensor._make_subclass(Traced, node.value.detach())
        traced.node, traced.tape = node, self
        return traced

    def columns(self, x: Traced, start: int, stop: int) -> Traced:
        """A part of an input: the features of a node type, or the rows of one of its tables."""
        return self.wrap(self.add("columns", (x, start, stop), {}, plain(x)[:, start:stop]))

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function of torch and record its result."""
        name = name_of(func)
        if name == "type" and len(args) > 1:
            name = "to"
        if name in SHAPES or name in SHOWN:
            return self._asked(name, args, kwargs, func(*plain(args), **plain(kwargs)))
        if name == "detach_":
            return args[0]
        if name in ("to", "type_as") and not isinstance(args[0], Traced):
            # A constant takes the type of a recorded tensor, and nothing of its numbers.
            return func(*plain(args), **plain(kwargs))
        if self.beside is not None:
            below = self.beside.joined(name, args, kwargs)
            if below is not None:
                return below
            shaped = self.beside.shaped(name, func, args, kwargs)
            if shaped is not None:
                return self.wrap(shaped)
        kwargs = {key: value for key, value in kwargs.items() if key != "_stacklevel"}
        if kwargs.get("out") is not None:
            raise refuse(here(), f"{name}(out=...) writes into a tensor; use what it returns")
        kwargs.pop("out", None)
        ended = None if self.ends is None else self.ends.call(name, args, kwargs)
        if ended is not None:
            return ended
        args = beside_rows(self, name, args)
        if name in IN_PLACE or kwargs.pop("inplace", False):
            return self._replace(func, name.rstrip("_"), args, kwargs)
        if name == "__setitem__" and _fills(*args):
            return self._replace(func, "masked_fill", args, kwargs)
        if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            raise refuse(
                here(),
                f"{name} changes a tensor in place, so that it is not known what other names"
                " of it see; make a new tensor (torch.cat, torch.where, an operator)",
            )
        by_number = name == "__getitem__" or (name == "index_select" and args[1:2] == (0,))
        if by_number and (rows := _looked_up(args[0], args[-1])) is not None:
            return rows
        if name not in OF_TRUTH and any(is_truth(x.node) for x in traced_in(args)):
            return self._of_numbers(func, args, kwargs)
        if name == "to" and func(*plain(args), **plain(kwargs)).dtype is torch.bool:
            name = "bool"
            args, kwargs = args[:1], {}
        if name in ("add", "__add__", "__radd__") and (mask := _minus_infinity(args)) is not None:
            left, kept = mask
            return torch.where(left, -torch.inf, kept[0] + kept[1])
        if name == "mT" and args[0].dim() > 2:
            return args[0].transpose(-2, -1)
        if name == "__getitem__" and _is_in_order(args[1], len(plain(args[0]))):
            return args[0]
        if name == "__getitem__" and _takes_a_step(*args):
            return at_steps(args[0], args[1][1])
        paired = over_pairs(self, func, name, args, kwargs)
        if paired is not None:
            return paired
        reduced = over_all(self, name, args, kwargs)
        if reduced is not None:
            return reduced
        if name in DECOMPOSED:
            return DECOMPOSED[name](*args, **kwargs)
        return self._results(name, args, kwargs, func(*plain(args), **plain(kwargs)))

    def _asked(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Any:
        """The answer to a question about a tensor's shape or type."""
        node = args[0].node
        if name in SIZES and node.picked:
            raise refuse(
                node.where,
                f"{shown(node.op)} gives a number of rows that depends on values, and it is read"
                + SAME_WAY
                + "; to publish some nodes alone, return all rows",
            )
        if name not in SIZES:
            return value
        dim = (*args[1:], *kwargs.values(), None)[0]
        place = 0 if edges_of(node) is None else 1
        return counted(value, place, None if dim is None else dim % args[0].dim(), args[0])

    def _of_numbers(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a function gives of truth values as 1 and 0, of the type that torch gives it."""
        whole = func(*plain(args), **plain(kwargs))
        value = func(*map(as_numbers, args), **kwargs)
        if not (isinstance(value, Traced) and value.is_floating_point()):
            return value
        if isinstance(whole, Tensor) and whole.dtype is torch.bool:
            return value != 0
        return value.long() if isinstance(whole, Tensor) and _is_whole(whole) else value

    def edges_of(self, x: Traced) -> EdgeSums | None:
        """The edges for each of which a tensor has a row; None for the edges of all relations."""
        return None if self.ends is None else self.ends.of_relation(x.node.of)

    def _replace(
        self, func: Callable[..., Any], op: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record an in-place operation: the same name stands for a new value."""
        target = args[0]
        if not isinstance(target, Traced):
            # A constant becomes a result, as in total = zeros(...); total += h.
            raise refuse(
                here(),
                f"{op}_ changes a constant in place; write it as an operator: total = total + h",
            )
        if op in DECOMPOSED:
            changed = DECOMPOSED[op](self.wrap(target.node), *args[1:], **kwargs)
            node, result = changed.node, plain(changed)
        else:
            copy = plain(target).clone()
            result = func(copy, *plain(args[1:]), **plain(kwargs))
            node = self.add(op, args, kwargs, result)
        with torch._C.DisableTorchFunctionSubclass():
            target.data = result.detach()
        target.node = node
        return target

    def _results(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Any:
        if op in REDUCES_ALL:
            _refuse_over_edges(op, args, value)
        if isinstance(value, Tensor):
            return self.wrap(self.add(op, args, kwargs, value))
        if isinstance(value, (tuple, list)) and any(isinstance(part, Tensor) for part in value):
            whole = self.add(op, args, kwargs, value)
            parts = [
                None if part is None else self.wrap(self.add("item", (whole, place), {}, part))
                for place, part in enumerate(value)
            ]
            return _Named(value, parts) if hasattr(value, "values") else tuple(parts)
        raise refuse(here(), DECIDES.get(op, f"{op} reads the numbers in a tensor") + SAME_WAY)


def _is_whole(value: Tensor) -> bool:
    """Whether a tensor is of integers."""
    return not value.is_floating_point() and value.dtype is not torch.bool


def _refuse_over_edges(op: str, args: tuple[Any, ...], value: Any) -> None:
    """Refuse a reduction over all edges of a relation."""
    x, first = args[0], value[0] if isinstance(value, tuple) else value
    if (
        isinstance(x, Traced)
        and x.node.edges
        and isinstance(first, Tensor)
        and first.shape[:1] != x.shape[:1]
    ):
        raise refuse(
            here(),
            f"{op} over all edges is not known; known are mean, sum, max, min, var, std and norm"
            " over them. Or change the edges in the job's files, by the numbers of training",
        )


def _picks(op: str, args: tuple[Any, ...]) -> bool:
    """Whether the number of rows depends on the numbers in a tensor."""
    if op == "__getitem__":
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(key, Traced) and key.dtype is torch.bool for key in keys)
    return op in PICKS or (op == "where" and len(args) == 1)


def _minus_infinity(args: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, Any]] | None:
    """Where a constant among two summands is minus infinity, and both with zeros in its place."""
    for x, constant in (args[:2], args[1::-1]):
        if type(constant) is Tensor and bool(torch.isneginf(constant).any()):
            left = torch.isneginf(constant)
            return left, (x, constant.masked_fill(left, 0.0))
    return None


def _looked_up(table: Any, key: Any) -> Any:
    """Rows of a constant by categories or numbers of relations; None for other calls."""
    whole = isinstance(key, Traced) and _is_whole(key.node.value)
    if not whole or isinstance(table, Traced) or not isinstance(table, Tensor):
        return None
    rows = torch.nn.functional.embedding(key, table.reshape(len(table), -1))
    return rows.view(*key.shape, *table.shape[1:])


def _takes_a_step(x: Any, key: Any) -> bool:
    """Whether each row takes what stands at a number of its own: ``x[arange(len(x)), index]``."""
    keys = [part for part in key if part != slice(None)] if isinstance(key, tuple) else []
    return (
        len(keys) == 2
        and isinstance(x, Traced)
        and [*key[:2]] == keys
        and isinstance(keys[1], Traced)
        and _is_in_order(keys[0], len(x.node.value))
    )


def _is_in_order(index: Any, rows: int) -> bool:
    """Whether it names all rows, one after another."""
    if isinstance(index, range):
        return index == range(rows)
    return (
        type(index) is Tensor
        and index.dtype is torch.int64
        and torch.equal(index, torch.arange(rows))
    )


def _fills(target: Any, key: Any, value: Any) -> bool:
    """Whether a number is put where a condition on the same rows holds: ``x[x < 0] = 0``."""
    is_number = isinstance(value, int | float) or (type(value) is Tensor and value.dim() == 0)
    return (
        is_number
        and isinstance(key, Traced)
        and isinstance(target, Traced)
        and key.dtype is torch.bool
        and key.shape == target.shape
    )


def _common(node: Node) -> str:
    """The node type, or relation, of all rows that a node reads."""
    names = {source.of for source in node.sources() if source.edges == node.edges}
    if len(names) > 1:
        what = "relations" if node.edges else "node types"
        raise refuse(
            node.where,
            f"{node.op} puts tensors of the {what} {' and '.join(sorted(names))} together, whose"
            " rows are not the same; compute each by itself, and sum up edges first",
        )
    return names.pop() if names else ""


class _Named(tuple[Any, ...]):
    """Several results that torch also gives by name: ``x.max(1).values``."""

    values: Traced
    indices: Traced

    def __new__(cls, value: Any, parts: list[Any]) -> _Named:
        named = super().__new__(cls, parts)
        for name, part in zip(type(value).__match_args__, parts, strict=True):
            setattr(named, name, part)
        return named
