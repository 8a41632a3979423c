"""Recorded operations, and tensors that remember the operation that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False, repr=False)
class Node:
    """One recorded operation.

    Attributes:
        op: the function's short name, ``input`` or ``conv``; ``item`` is one of several results.
        args: traced tensors stand as their nodes, all else as it was passed.
        value: its result on the traced graph.
        where: ``file:line`` in the user's code.
        edges: whether it has a row for each edge, not for each node.
        number: how many operations were recorded before it.
        of: the node type whose rows it has, or the relation; "" where a graph has one of each.
        within: names of the calls of modules that had not returned yet.
        whole: whether every node has the same row, which is a statistic over all of them.
        part: whether it is a part of such a statistic, and nothing that the module itself has.
        picked: whether how many rows it has depends on numbers in tensors.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any
    where: str
    edges: bool = False
    number: int = 0
    of: str = ""
    within: tuple[str, ...] = ()
    whole: bool = False
    part: bool = False
    picked: bool = False

    def sources(self) -> list[Node]:
        """The nodes that it reads."""
        return list(nodes_in((self.args, tuple(self.kwargs.values()))))


def is_truth(node: Node) -> bool:
    """Whether its values are true and false; a program has them as 1 and 0."""
    return isinstance(node.value, Tensor) and node.value.dtype is torch.bool


class Traced(Tensor):
    """A tensor that knows the node that made it."""

    node: Node
    tape: Any

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call it with plain tensors and record it; other classes with this hook handle it."""
        if not all(issubclass(x, Tensor) for x in types):
            return NotImplemented
        kwargs = dict(kwargs or {})
        tape = next(x.tape for x in traced_in((args, tuple(kwargs.values()))))
        return tape.call(func, args, kwargs)


# Python's own messages name the class: 'Tensor' object has no attribute ...
Traced.__name__ = Traced.__qualname__ = "Tensor"


def plain(value: Any) -> Any:
    """The same with plain tensors in place of traced ones."""
    if isinstance(value, Traced):
        with torch._C.DisableTorchFunctionSubclass():
            return value.as_subclass(Tensor)
    return _mapped(plain, value)


def viewed(x: Any, columns: Sequence[int]) -> Traced:
    """A traced tensor of rows with other dimensions within a row."""
    shape = (len(x.node.value), *columns)
    return x.tape.wrap(  # type: ignore[no-any-return]
        x.tape.add("view", (x, shape), {}, plain(x).reshape(shape))
    )


def as_nodes(value: Any) -> Any:
    """The same with nodes in place of traced tensors."""
    return value.node if isinstance(value, Traced) else _mapped(as_nodes, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(change(item) for item in value)
    if type(value) is dict:
        return {key: change(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(change(value.start), change(value.stop), change(value.step))
    return value


def map_nodes(change: Callable[[Node], Node], value: Any) -> Any:
    """The same with other nodes in place of nodes."""
    if isinstance(value, Node):
        return change(value)
    return _mapped(lambda item: map_nodes(change, item), value)


def nodes_in(value: Any) -> Iterable[Node]:
    """The nodes among arguments."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from nodes_in(item)
    elif isinstance(value, dict):
        yield from nodes_in(tuple(value.values()))


def traced_in(value: Any) -> Iterable[Traced]:
    """The traced tensors among arguments."""
    if isinstance(value, Traced):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from traced_in(item)
    elif isinstance(value, slice):
        yield from traced_in((value.start, value.stop, value.step))


def name_of(func: Any) -> str:
    """``relu`` of a function, ``T`` of a property, ``sub`` of an operator's reflected form."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name in ("__get__", "__set__"):
        return str(func.__self__.__name__)
    return name
