"""Recorded operations as lines of `embertide.steps.ops`: whatever no step of its own says.

Each line is one of torch's operations on rows, of nodes or of edges; its first dimension is never
touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from embertide.tracing.line_layers import LAYERS
from embertide.tracing.source import refuse
from embertide.tracing.tape import Node

_UNARY = (
    *("abs", "cos", "erf", "exp", "expm1", "log", "log1p", "neg", "reciprocal", "rsqrt", "sign"),
    *("sin", "sqrt", "square", "sigmoid", "tanh", "logical_not", "relu", "silu", "relu6", "selu"),
    *("celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid"),
    *("mish", "prelu", "softplus", "softsign", "tanhshrink"),
)
_BINARY = {
    **{name: name for name in ("maximum", "minimum", "pow", "eq", "ne", "lt", "le", "gt", "ge")},
    **{name: name for name in ("logical_and", "logical_or", "add", "sub", "mul", "div")},
    **{"__radd__": "add", "multiply": "mul", "__rmul__": "mul", "true_divide": "div"},
    **{"subtract": "sub", "__and__": "logical_and", "__or__": "logical_or"},
}
_REFLECTED = {"rsub": "sub", "__rsub__": "sub", "__rdiv__": "div", "__rpow__": "pow"}
_REDUCTIONS = {
    **{name: name for name in ("sum", "mean", "prod", "amax", "amin", "logsumexp", "std", "var")},
    **{"max": "amax", "min": "amin"},
}
_WITHIN = ("softmax", "log_softmax")
_SAME = (
    *("contiguous", "clone", "detach", "data", "to", "float", "double", "cpu", "type_as"),
    *("dropout", "feature_dropout"),
)
_SHAPES = ("view", "reshape", "flatten", "squeeze", "unsqueeze", "view_as", "reshape_as")


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
            ModelError: no line says the operation.
        """
        if node not in self.names:
            name = self.leaf(node)
            self.names[node] = self._made(node) if name is None else name
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

    def finish(self, name: str, width: int, out: str = "out") -> None:
        """Make a value the result: rows with columns alone."""
        self.text.append(f"{out} = reshape({name}, [{width}])")

    def _made(self, node: Node) -> str:
        if node.op != "item":
            for one in node.sources():
                self.of(one)
        self._at, op, args = node, node.op, node.args
        if op in _SAME:
            if node.kwargs.get("training", op.endswith("dropout") and len(args) < 3):
                raise refuse(node.where, "dropout stays active in eval mode; pass training=False")
            return self.of(args[0])
        if op in _SHAPES:
            return self._reshaped(node)
        if op in _REFLECTED:
            return self.add(f"{_REFLECTED[op]}({self._value(args[1])}, {self._value(args[0])})")
        if op in _BINARY:
            return self._binary(node)
        if op in _REDUCTIONS:
            return self._reduced(node)
        if op == "item":
            return self._item(node)
        if op in LAYERS:
            return LAYERS[op](self, node)
        if op in _UNARY:
            return self.add(f"{op}({self._arguments(node)})")
        special = {
            "where": self._plain,
            "clamp": self._plain,
            "__getitem__": self._cut,
            "cat": self._joined,
            "stack": self._joined,
            "transpose": self._plain,
            "expand_as": self._expanded,
            "expand": self._expanded,
            "repeat": self._repeated,
            **dict.fromkeys(_WITHIN, self._within),
        }
        if op not in special:
            raise refuse(
                node.where,
                f"torch's {op} is not known here; docs/export.md lists what is",
            )
        return special[op](node)

    # -- arguments -------------------------------------------------------------------------------

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.of(value)
        if isinstance(value, Tensor):
            return repr(float(value)) if value.dim() == 0 else self._constant(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._value(one) for one in value)}]"
        return repr(value.item() if isinstance(value, np.generic) else value)

    def _constant(self, tensor: Tensor) -> str:
        at = self._at
        if at is not None and tensor.dim() >= at.value.dim() and tensor.shape[0] != 1:
            raise refuse(
                at.where,
                f"a constant of shape {list(tensor.shape)} has a row for each node of one graph; it"
                " must not depend on the graph",
            )
        return self.param(tensor)

    def _arguments(self, node: Node) -> str:
        given = {name: one for name, one in node.kwargs.items() if one is not None}
        parts = [self._value(one) for one in node.args]
        parts += [f"{name}={self._value(one)}" for name, one in given.items()]
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
        return self.add(f"{_BINARY[node.op]}({self._value(a)}, {other})")

    def _reshaped(self, node: Node) -> str:
        sizes = list(node.value.shape)
        if not sizes or sizes[0] != node.args[0].value.shape[0]:
            raise refuse(node.where, f"{node.op} mixes rows; keep the first dimension")
        return self.add(f"reshape({self.of(node.args[0])}, {sizes[1:]})")

    def _expanded(self, node: Node) -> str:
        sizes = list(node.value.shape)
        if sizes[:1] != list(node.args[0].value.shape[:1]):
            raise refuse(node.where, f"{node.op} repeats rows; keep the first dimension")
        return self.add(f"expand({self.of(node.args[0])}, {sizes[1:]})")

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
                f"{node.op} over all rows needs the whole graph at once; give a dim of a row's own",
            )
        keep = node.kwargs.get("keepdim", len(node.args) > 2 and node.args[2])
        function = _REDUCTIONS[node.op]
        return self.add(f"{function}({self.of(x)}, {dim}, {bool(keep)})")

    def _within(self, node: Node) -> str:
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        return self.add(f"{node.op}({self.of(node.args[0])}, {dim})")

    def _item(self, node: Node) -> str:
        """One of several results: the largest values, or one of the pieces of a tensor."""
        whole, place = node.args
        if whole.op in ("max", "min") and place == 0:
            return self.of(whole)
        if whole.op in ("chunk", "split"):
            dim = whole.kwargs.get("dim", whole.args[2] if len(whole.args) > 2 else 0)
            before = sum(part.shape[dim] for part in whole.value[:place])
            size = whole.value[place].shape[dim]
            return self.add(f"narrow({self.of(whole.args[0])}, {dim}, {before}, {size})")
        raise refuse(whole.where, f"result {place} of {whole.op} is not known here")

    def _joined(self, node: Node) -> str:
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
        return self.add(f"{node.op}({self._value(node.args[0])}, {dim})")

    def _cut(self, node: Node) -> str:
        """Columns picked out; the rows stay."""
        x, key = node.args
        keys = list(key) if isinstance(key, tuple) else [key]
        shape = x.value.shape
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            missing = len(shape) - sum(one is not None for one in keys) + 1
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
        for one in rest:
            if one is None:
                name = self.add(f"unsqueeze({name}, {dim})")
                dim += 1
            elif isinstance(one, int):
                name = self.add(f"select({name}, {dim}, {one % shape[place]})")
                place += 1
            elif isinstance(one, slice) and one.step in (None, 1):
                start, stop, _ = one.indices(shape[place])
                if (start, stop) != (0, shape[place]):
                    name = self.add(f"narrow({name}, {dim}, {start}, {stop - start})")
                dim, place = dim + 1, place + 1
            else:
                raise refuse(node.where, "columns are picked out by a list; use a slice")
        return name
