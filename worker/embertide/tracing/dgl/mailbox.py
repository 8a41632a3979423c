"""Reduce functions of DGL's users: ``nodes.mailbox`` holds every node's messages side by side.

DGL calls such a function once for each in-degree, with mailboxes ``[nodes, in-degree, ...]``. Here
it runs once: a `Mail` stands for a mailbox and holds the messages ``[edges, ...]``, and what
reduces its dimension 1 is a sum, mean or maximum over the in-edges of each node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embertide.models.convs.shared.aggregation import REDUCES
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Traced, name_of
from embertide.tracing.record.user_code import here, refuse

_REDUCES = {**{name: name for name in ("sum", "mean", "max", "min")}, "amax": "max", "amin": "min"}
_BY_NUMBERS = (
    *("add", "sub", "rsub", "mul", "multiply", "div", "true_divide", "pow", "neg", "abs", "sign"),
    *("exp", "log", "log1p", "sqrt", "rsqrt", "square", "reciprocal", "clamp", "where"),
    *("maximum", "minimum", "relu", "leaky_relu", "elu", "gelu", "silu", "softplus", "sigmoid"),
    *("tanh", "dropout", "linear", "matmul", "float", "double", "contiguous", "clone", "detach"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__pow__", "__neg__", "__matmul__", "__rtruediv__"),
)
"""Functions of each message by itself, whatever dimensions follow its dimension 1."""
_KNOWN = (
    "known are sum, mean, max, min and softmax over dimension 1, functions of numbers, cat, Linear"
    " and columns picked by slices"
)


@dataclass(frozen=True)
class Nodes:
    """What a reduce function is given.

    Attributes:
        data: tensors of the nodes by name.
        mailbox: messages by name.
    """

    data: Mapping[str, Any]
    mailbox: Mapping[str, Mail]


def reduced_by(
    function: Callable[[Any], Mapping[str, Any]],
    messages: Mapping[str, Any],
    data: Mapping[str, Any],
    edges: Edges,
    scope: Called,
) -> dict[str, Any]:
    """What a user's function makes of messages, by name; zeros for nodes without in-edges."""
    mailbox = {name: Mail(values, edges, scope) for name, values in messages.items()}
    reduced = {}
    for name, out in function(Nodes(data, mailbox)).items():
        if not isinstance(out, Traced) or out.node.edges:
            raise refuse(
                here(),
                f"the reduce function returns {name!r} with a row for each message; reduce"
                " dimension 1 of nodes.mailbox first",
            )
        reduced[name] = out if out.node.op == "aggregate" else _where_reached(out, edges)
    return reduced


def _where_reached(out: Traced, edges: Edges) -> Any:
    """Zeros in the rows of nodes without in-edges, for which DGL does not call the function."""
    reached = edges.degree("in").view(-1, *[1] * (out.dim() - 1)) > 0
    return torch.where(reached, out, 0.0)


class Extreme(NamedTuple):
    """What ``max`` and ``min`` with a dimension return; the order of edges tells no indices."""

    values: Any
    indices: None


class Mail:
    """A mailbox ``[nodes, in-degree, ...]``, held as messages ``[edges, ...]``.

    Attributes:
        of_nodes: what it was before it was spread over the mailbox, if it was.
    """

    def __init__(self, value: Any, edges: Edges, scope: Called, of_nodes: Any = None) -> None:
        self.value, self.edges, self.scope, self.of_nodes = value, edges, scope, of_nodes

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """A function of torch on mailboxes."""
        mail = next(mail for mail in _mails((args, kwargs)))
        return mail.call(name_of(func), func, args, dict(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = getattr(torch, name, None) or getattr(Tensor, name, None)
        return lambda *args, **kwargs: self.call(name, function, (self, *args), kwargs)

    def __getitem__(self, key: Any) -> Mail:
        keys = key if isinstance(key, tuple) else (key,)
        if keys[0] is Ellipsis and len(keys) < self.dim():
            return self._like(self.value[key])
        ahead, rest = (*keys, slice(None), slice(None))[:2], keys[2:]
        if any(key != slice(None) for key in ahead):
            raise refuse(
                here(),
                "messages are picked out of a mailbox by number, which depends on the order"
                " of edges; reduce all of them",
            )
        return self._like(self.value[(slice(None), *rest)])

    @property
    def shape(self) -> tuple[Any, ...]:
        """Nodes, messages of each, and the dimensions of one."""
        return (_Unknown(), Degree(self.edges.degree("in")), *self.value.shape[1:])

    def size(self, dim: int | None = None) -> Any:
        """The size of one dimension or of all."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """How many dimensions."""
        return int(self.value.dim()) + 1

    def call(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of torch by its name.

        Raises:
            ModelError: it is not known of mailboxes.
        """
        if name in ("softmax", *_REDUCES):
            return self._over(name, function, args[1:], kwargs)
        if name in ("cat", "concat", "stack", "unsqueeze", "squeeze"):
            return self._shaped(name, function, args, kwargs)
        if name in _BY_NUMBERS and function is not None:
            return self._like(function(*self._plain(args), **self._plain(kwargs)))
        raise refuse(here(), f"{name} of a mailbox is not known here; {_KNOWN}")

    def _over(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A reduction, or softmax, over the messages of a node or within each."""
        dim = kwargs.get("dim", args[0] if args else None)
        if not isinstance(dim, int):
            raise refuse(here(), f"{name} of a mailbox needs a dimension; {_KNOWN}")
        place = self._place(dim, self.dim())
        if place > 0:
            kwargs = {**{key: value for key, value in kwargs.items() if key != "dim"}, "dim": place}
            result = function(self.value, *args[1:], **kwargs)
            whole = isinstance(result, Traced)
            return self._like(result) if whole else tuple(self._like(value) for value in result)
        if name == "softmax":
            return self._like(self.edges.softmax(self.value))
        out: Any = self.edges.aggregate(self.value, REDUCES[_REDUCES[name]], self.scope)
        if kwargs.get("keepdim", args[1] if len(args) > 1 else False):
            out = Mail(self.edges.target(out), self.edges, self.scope, of_nodes=out)
        return Extreme(out, None) if name in ("max", "min") else out

    def _shaped(
        self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if name == "squeeze" and dim == 1 and self.of_nodes is not None:
            return self.of_nodes
        if not isinstance(dim, int):
            raise refuse(here(), f"{name} of a mailbox needs a dimension; {_KNOWN}")
        place = self._place(dim, self.dim() + (name in ("stack", "unsqueeze")))
        if place == 0:
            raise refuse(here(), f"{name} of mailboxes over dimension 1 is not known; {_KNOWN}")
        return self._like(function(self._plain(args[0]), place))

    def _place(self, dim: int, dims: int) -> int:
        """Which dimension of messages one of a mailbox is; 0 for that of the messages."""
        place = dim % dims - 1
        if place < 0:
            raise refuse(here(), "dimension 0 of a mailbox has other nodes in another graph")
        return place

    def _like(self, value: Any) -> Mail:
        return Mail(value, self.edges, self.scope)

    def _plain(self, value: Any) -> Any:
        """Messages in place of mailboxes, constants and tensors of nodes."""
        if isinstance(value, Mail):
            return value.value
        if isinstance(value, Degree):
            return self.edges.target(value.value).view(-1, *[1] * (self.dim() - 2))
        if type(value) in (tuple, list):
            return type(value)(self._plain(item) for item in value)
        if type(value) is dict:
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, Traced) and not value.node.edges:
            if value.dim() != self.dim() or value.shape[1] != 1:
                raise refuse(
                    here(),
                    "a tensor of the nodes meets their mailboxes; give it a dimension 1 of"
                    " size 1 for the messages: unsqueeze(1)",
                )
            return self.edges.target(value.squeeze(1))
        if isinstance(value, Tensor) and value.dim() == self.dim() and value.shape[0] == 1:
            return value.squeeze(0)
        return value

    def __neg__(self) -> Any:
        return self.call("neg", torch.neg, (self,), {})


def _operator(name: str) -> Callable[[Mail, Any], Any]:
    def operate(mail: Mail, other: Any) -> Any:
        return mail.call(name, getattr(Tensor, name), (mail, other), {})

    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "matmul"):
    setattr(Mail, f"__{_name}__", _operator(f"__{_name}__"))


class Degree(np.lib.mixins.NDArrayOperatorsMixin):
    """``mailbox.size(1)``: each node's in-degree, a number to the function that asks.

    Attributes:
        value: [N] or a function of it.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **_kwargs: Any) -> Any:
        """Arithmetic and numpy's functions of numbers, such as ``numpy.log``."""
        if any(isinstance(value, Mail) for value in inputs):
            return NotImplemented
        function = getattr(torch, _OF_NUMPY.get(ufunc.__name__, ufunc.__name__), None)
        if method != "__call__" or function is None:
            raise refuse(here(), f"{ufunc.__name__} of an in-degree is not known here")
        return _of_rows(function, inputs)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """A function of torch on an in-degree and rows of nodes."""
        return _of_rows(func, args, kwargs)


def _of_rows(function: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
    """A function of in-degrees and numbers, which is such a number; or of rows of nodes, too."""
    rows = next((arg for arg in args if isinstance(arg, Tensor) and arg.dim()), None)
    dims = 0 if rows is None else rows.dim() - 1
    result = function(*(_beside(arg, dims) for arg in args), **(kwargs or {}))
    return result if rows is not None else Degree(result)


def _beside(value: Any, dims: int) -> Any:
    """In-degrees as rows of ``dims`` dimensions."""
    if isinstance(value, Degree):
        return value.value.view(-1, *[1] * dims)
    return value if isinstance(value, Tensor) else torch.as_tensor(value)


_OF_NUMPY = {
    **{"power": "pow", "negative": "neg", "absolute": "abs"},
    **{"divide": "div", "multiply": "mul", "subtract": "sub"},
}
"""Numpy's names of torch's functions."""


class _Unknown:
    """How many nodes come together, which differs by graph."""


def _mails(value: Any) -> list[Mail]:
    if isinstance(value, Mail):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [mail for part in value for mail in _mails(part)] if type(value) in (tuple, list) else []
