"""Recorded operations as lines of `embertide.program.steps.ops`, where they have no step.

Each line is one of torch's operations on rows, of nodes or of edges; its first dimension is never
touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embertide.tracing.lower.line_layers import LAYERS
from embertide.tracing.lower.line_names import (
    BINARY,
    NAMED,
    REDUCTIONS,
    REFLECTED,
    SAME,
    SHAPES,
    UNARY,
    WITHIN,
)
from embertide.tracing.lower.unsupported import unsupported
from embertide.tracing.record.constants import uniform
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse


@dataclass
class Lines:
    """The lines so far.

    Attributes:
        leaf: the name that a line reads for a node that no line makes, or None.
        param: the name of a parameter that a constant becomes, ``p0``, ``p1``, ...
    """

    leaf: Callable[[Node], str | None]
    param: Callable[[Tensor], str]
    text: list[str] = field(default_factory=list)
    names: dict[Node, str] = field(default_factory=dict)
    _at: Node | None = None

    def of(self, node: Node) -> str:
        """The name of a node's value, once its lines are written.

        Raises:
            ModelError: no line can express the operation.
        """
        if node not in self.names:
            name = self.leaf(node)
            self.names[node] = self._written(node) if name is None else name
        return self.names[node]

    def argument(self, value: Any, at: Node) -> str:
        """What a line reads for an argument of an operation."""
        self._at = at
        return self._value(value)

    def add(self, call: str) -> str:
        """One more line; returns its name."""
        name = f"v{len(self.text)}"
        self.text.append(f"{name} = {call}")
        return name

    def numbers(self, name: str) -> str:
        """Truth values as 1 and 0, as a program has them."""
        return self.add(f"where({name}, 1.0, 0.0)")

    def truth(self, name: str) -> str:
        """The reverse: where 1 and 0 are read as truth values again."""
        return self.add(f"ne({name}, 0.0)")

    def finish(self, name: str, width: int, out: str = "out") -> None:
        """Make a value the result: rows with columns alone."""
        self.text.append(f"{out} = reshape({name}, [{width}])")

    def _written(self, node: Node) -> str:
        if node.op != "item":
            for source in node.sources():
                self.of(source)
        self._at, op, args = node, node.op, node.args
        if op in ("to", "type_as") and _is_whole(node.value) and not _is_whole(args[0].value):
            return self.add(f"trunc({self.of(args[0])})")
        if op in SAME:
            if node.kwargs.get("training", op.endswith("dropout") and len(args) < 3):
                raise refuse(node.where, "dropout stays active in eval mode; pass training=False")
            return self.of(args[0])
        if op in SHAPES:
            return self._reshaped(node)
        if op in REFLECTED:
            return self.add(f"{REFLECTED[op]}({self._value(args[1])}, {self._value(args[0])})")
        if op in BINARY:
            return self._binary(node)
        if op in REDUCTIONS:
            return self._reduced(node)
        if op == "item":
            return self._item(node)
        if op in LAYERS:
            return LAYERS[op](self, node)
        if op in UNARY:
            return self.add(f"{NAMED.get(op, op)}({self._arguments(node)})")
        special = {
            "where": self._plain,
            "clamp": self._plain,
            "columns": self._part,
            "embedding": self._looked_up,
            "one_hot": self._one_hot,
            "__getitem__": self._cut,
            "cat": self._joined,
            "stack": self._joined,
            "transpose": self._plain,
            "einsum": self._summed,
            "expand_as": self._expanded,
            "expand": self._expanded,
            "repeat": self._repeated,
            **dict.fromkeys(WITHIN, self._within),
        }
        if op not in special:
            raise unsupported(node)
        return special[op](node)

    # -- arguments -------------------------------------------------------------------------------

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.of(value)
        if isinstance(value, Tensor):
            if value.dtype is torch.bool and value.dim() and self._at is not None:
                like = next(iter(self._at.sources()))
                return self.truth(self._as_every_row(self._at, value.double(), like))
            return _number(float(value)) if value.dim() == 0 else self._constant(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._value(item) for item in value)}]"
        return _number(value.item() if isinstance(value, np.generic) else value)

    def _constant(self, tensor: Tensor) -> str:
        at = self._at
        if at is not None and tensor.dim() >= at.value.dim() and tensor.shape[0] != 1:
            number = uniform(tensor) if at.op in BINARY or at.op in REFLECTED else None
            if number is not None:
                return _number(number)
            if torch.equal(tensor, tensor[:1].expand_as(tensor)):
                return self._repeated_as(tensor, next(iter(at.sources())))
            raise refuse(
                at.where,
                f"a constant of shape {list(tensor.shape)} has a row for each node of one graph; it"
                " must not depend on the graph",
            )
        return self.param(tensor)

    def _arguments(self, node: Node) -> str:
        keywords = {name: arg for name, arg in node.kwargs.items() if arg is not None}
        parts = [self._value(arg) for arg in node.args]
        parts += [f"{name}={self._value(arg)}" for name, arg in keywords.items()]
        return ", ".join(parts)

    def _plain(self, node: Node) -> str:
        return self.add(f"{node.op}({self._arguments(node)})")

    # -- operations ------------------------------------------------------------------------------

    def _binary(self, node: Node) -> str:
        a, b = node.args
        alpha = node.kwargs.get("alpha", 1)
        other = self._value(b)
        if alpha != 1:
            other = self.add(f"mul({other}, {alpha!r})")
        return self.add(f"{BINARY[node.op]}({self._value(a)}, {other})")

    def _reshaped(self, node: Node) -> str:
        sizes = list(node.value.shape)
        if not sizes or sizes[0] != node.args[0].value.shape[0]:
            raise refuse(node.where, f"{node.op} mixes rows; keep the first dimension")
        return self.add(f"reshape({self.of(node.args[0])}, {sizes[1:]})")

    def _summed(self, node: Node) -> str:
        equation, *parts = node.args
        if len(parts) == 1 and isinstance(parts[0], (list, tuple)):
            parts = list(parts[0])
        terms, _, result = str(equation).replace(" ", "").partition("->")
        apart = zip(terms.split(","), parts, strict=False)
        if "." in terms or any(
            (term[:1] == result[:1]) != isinstance(part, Node) or result[:1] in term[1:]
            for term, part in apart
        ):
            raise refuse(
                node.where,
                f"einsum {equation!r} is known with the nodes' letter in front of each tensor of"
                " nodes and of the result, and of no constant",
            )
        named = ", ".join(
            self.of(part) if isinstance(part, Node) else self.param(part) for part in parts
        )
        return self.add(f"einsum({equation!r}, {named})")

    def _expanded(self, node: Node) -> str:
        x = node.args[0]
        if isinstance(x, Tensor):
            return self._as_every_row(node, x, node.args[1])
        sizes = list(node.value.shape)
        if sizes[:1] != list(node.args[0].value.shape[:1]):
            raise refuse(node.where, f"{node.op} repeats rows; keep the first dimension")
        return self.add(f"expand({self.of(node.args[0])}, {sizes[1:]})")

    def _as_every_row(self, node: Node, constant: Tensor, like: Node) -> str:
        """A constant, expanded as a tensor of rows."""
        if constant.dim() >= node.value.dim() and constant.shape[0] != 1:
            return self._constant(constant)
        row = self.param(constant.expand(1, *node.value.shape[1:])[0].contiguous())
        return self.add(f"repeat({row}, {self.of(like)})")

    def _repeated(self, node: Node) -> str:
        x, *sizes = node.args
        if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
            sizes = list(sizes[0])
        if len(sizes) != x.value.dim() or sizes[0] != 1:
            raise refuse(node.where, "repeat is known within a row; say 1 for the first dimension")
        name = self.of(x)
        for dim, times in enumerate(sizes):
            if times > 1:
                name = self.add(f"cat([{', '.join([name] * times)}], {dim})")
        return name

    def _reduced(self, node: Node) -> str:
        x = node.args[0]
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        if isinstance(dim, (list, tuple)) and len(dim) == 1:
            dim = dim[0]
        if not isinstance(dim, int) or dim % x.value.dim() == 0:
            raise refuse(
                node.where,
                f"{node.op} over all rows needs the whole graph at once; give a dim of a row's own."
                " Over all nodes mean, sum, max, min, var, std and norm are known",
            )
        keep = node.kwargs.get("keepdim", len(node.args) > 2 and node.args[2])
        function = REDUCTIONS[node.op]
        return self.add(f"{function}({self.of(x)}, {dim}, {bool(keep)})")

    def _within(self, node: Node) -> str:
        x, dim = node.args[0], node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        if not isinstance(dim, int) or dim % x.value.dim() == 0:
            raise refuse(
                node.where,
                f"{node.op} over all rows (dim={dim}) needs the whole graph at once; known are a"
                " dim of a row's own, and over the in-edges of each node"
                " torch_geometric.utils.softmax(scores, index)",
            )
        return self.add(f"{node.op}({self.of(x)}, {dim})")

    def _item(self, node: Node) -> str:
        """One of several results: the largest values, or one of the pieces of a tensor."""
        whole, place = node.args
        if whole.op in ("max", "min") and place == 0:
            return self.of(whole)
        if whole.op in ("max", "min") and len(whole.args) + len(whole.kwargs) > 1:
            return self._place_of(whole)
        if whole.op in ("chunk", "split"):
            dim = whole.kwargs.get("dim", whole.args[2] if len(whole.args) > 2 else 0)
            before = sum(part.shape[dim] for part in whole.value[:place])
            size = whole.value[place].shape[dim]
            return self.add(f"narrow({self.of(whole.args[0])}, {dim}, {before}, {size})")
        raise unsupported(whole)

    def _place_of(self, whole: Node) -> str:
        """The number of the first of the largest, or smallest, values of a row."""
        x, dim = whole.args[0], whole.kwargs.get("dim", (*whole.args[1:], None)[0])
        keep = whole.kwargs.get("keepdim", len(whole.args) > 2 and whole.args[2])
        place = dim % x.value.dim()
        size = x.value.shape[place]
        shape = [size, *[1] * (x.value.dim() - place - 1)]
        numbers = self.param(torch.arange(size, dtype=torch.float64).view(shape))
        most = self.add(f"{REDUCTIONS[whole.op]}({self.of(x)}, {place}, True)")
        each = self.add(f"where({self.add(f'eq({self.of(x)}, {most})')}, {numbers}, {float(size)})")
        return self.add(f"amin({each}, {place}, {bool(keep)})")

    def _joined(self, node: Node) -> str:
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
        like = next(iter(node.sources()))
        parts = [
            self._repeated_as(part, like) if _is_one_row(part) else self._value(part)
            for part in node.args[0]
        ]
        return self.add(f"{node.op}([{', '.join(parts)}], {dim})")

    def _repeated_as(self, constant: Tensor, like: Node) -> str:
        """A constant with one row as every row of a tensor."""
        return self.add(f"repeat({self.param(constant[0].contiguous())}, {self.of(like)})")

    def _looked_up(self, node: Node) -> str:
        """Rows of a parameter by categories."""
        index, table, *rest = node.args
        if (len(rest) > 1 and rest[1] is not None) or node.kwargs.get("max_norm") is not None:
            raise refuse(node.where, "nn.Embedding with max_norm changes rows as they are read")
        if not isinstance(table, Tensor) or not isinstance(index, Node):
            raise refuse(node.where, "embedding is known of categories of the features")
        if any(source.op in ("source", "target") for source in _leading_to(index)):
            raise refuse(
                node.where,
                "categories of nodes are looked up at the ends of edges; look them up before, for"
                " the nodes: h = self.emb(x[:, 0]), and then h[row], or propagate",
            )
        return self.add(f"take({self.param(table)}, {self.of(index)})")

    def _one_hot(self, node: Node) -> str:
        """Columns of zeros, and a one at the category."""
        count, index = node.value.shape[-1], node.args[0]
        each = self.add(f"unsqueeze({self.of(index)}, {index.value.dim()})")
        numbers = self.param(torch.arange(count, dtype=torch.float64))
        return self.add(f"where({self.add(f'eq({each}, {numbers})')}, 1.0, 0.0)")

    def _part(self, node: Node) -> str:
        """A part of an input's columns."""
        x, start, stop = node.args
        return self.add(f"narrow({self.of(x)}, 1, {start}, {stop - start})")

    def _cut(self, node: Node) -> str:
        """Columns picked out; the rows stay."""
        x, key = node.args
        if not isinstance(x, Node):
            raise refuse(
                node.where,
                "rows of a constant are picked out by numbers of nodes or edges, which is known of"
                " node types and relations in the modules of docs/export.md; other numbers belong"
                " to the features",
            )
        keys = list(key) if isinstance(key, tuple) else [key]
        shape = x.value.shape
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            missing = len(shape) - sum(entry is not None for entry in keys) + 1
            keys[at : at + 1] = [slice(None)] * missing
        rows, *rest = keys
        whole = isinstance(rows, slice) and rows.indices(shape[0]) == (0, shape[0], 1)
        if not whole:
            raise refuse(
                node.where,
                "rows are picked out by number, which are other nodes in another graph; return all"
                " rows",
            )
        name, dim, place = self.of(x), 1, 1
        for entry in rest:
            if entry is None:
                name = self.add(f"unsqueeze({name}, {dim})")
                dim += 1
            elif isinstance(entry, int):
                name = self.add(f"select({name}, {dim}, {entry % shape[place]})")
                place += 1
            elif isinstance(entry, slice) and entry.step in (None, 1):
                start, stop, _ = entry.indices(shape[place])
                if (start, stop) != (0, shape[place]):
                    name = self.add(f"narrow({name}, {dim}, {start}, {stop - start})")
                dim, place = dim + 1, place + 1
            elif isinstance(entry, list) and all(isinstance(at, int) for at in entry):
                parts = [f"narrow({name}, {dim}, {at % shape[place]}, 1)" for at in entry]
                name = self.add(f"cat([{', '.join(map(self.add, parts))}], {dim})")
                dim, place = dim + 1, place + 1
            else:
                raise refuse(node.where, "columns are known by a slice, a number or a list of them")
        return name


def _leading_to(node: Node) -> set[Node]:
    """An operation on edges, and all on edges that lead to it."""
    reached, left = {node}, [node]
    while left:
        new = {source for source in left.pop().sources() if source.edges} - reached
        reached |= new
        left.extend(new)
    return reached


def _is_one_row(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1 and len(value) == 1


def _is_whole(value: Any) -> bool:
    """Whether a tensor is of integers."""
    return isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool


def _number(value: Any) -> str:
    """A number as text in a line: infinity is a number too large for a float."""
    return repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)
