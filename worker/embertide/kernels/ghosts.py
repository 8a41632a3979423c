"""Ghosts: tensors of a shape and a type without memory, which layers are planned with.

A ghost goes wherever a tensor does: operations of torch on ghosts give ghosts, and kernels that
write into what they are given do nothing. What each would take is counted as long as something
refers to it. Shapes are those of a mean worker, and need not be whole numbers.

torch's own tensors without memory, on "meta", would import its compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

import torch

Shape = tuple[float, ...]
P = ParamSpec("P")
R = TypeVar("R")

_DEVICE = torch.device("meta")
_EMPTY = torch.empty(0)
_COMPARING = {"__eq__", "__ne__", "__gt__", "__ge__", "__lt__", "__le__", "eq", "ne", "isinf"}
_IN_PLACE = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__setitem__"}
_TYPES = {
    "double": torch.float64,
    "float": torch.float32,
    "long": torch.int64,
    "int": torch.int32,
    "bool": torch.bool,
}


class Ledger:
    """Bytes of the ghosts that are alive, and the most that ever were.

    Attributes:
        alive: of ghosts.
        peak: the most at a time.
    """

    def __init__(self) -> None:
        self.alive = self.peak = 0.0

    def need(self, more: float = 0.0) -> None:
        """Count bytes that are there at once with all that is alive."""
        self.peak = max(self.peak, self.alive + more)


class _Room:
    """Bytes that are alive as long as a ghost refers to them."""

    __slots__ = ("_bytes", "_ledger")

    def __init__(self, ledger: Ledger, size: float) -> None:
        self._ledger, self._bytes = ledger, size
        ledger.alive += size
        ledger.need()

    def __del__(self) -> None:
        self._ledger.alive -= self._bytes


class Ghost(torch.Tensor):
    """A tensor without memory; see :func:`ghost`."""

    ledger: Ledger
    room: _Room | None
    counted: bool
    whole_rows: bool
    _shape: Shape
    _dtype: torch.dtype

    shape: ClassVar[Any] = property(lambda self: self._shape)  # type: ignore[misc]
    dtype: ClassVar[Any] = property(lambda self: self._dtype)  # type: ignore[misc]
    device: ClassVar[Any] = property(lambda _self: _DEVICE)  # type: ignore[misc]

    def __len__(self) -> int:
        return math.ceil(self._shape[0])

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([_view(self, self._shape[1:]) for _ in range(int(self._shape[0]))])

    @classmethod
    def __torch_function__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.__name__
        rule = _RULES.get(name)
        if rule is not None:
            return rule(*args, **kwargs)
        if kwargs.get("out") is not None:
            return kwargs["out"]
        if name in _IN_PLACE or (name.endswith("_") and not name.endswith("__")):
            return args[0]
        return _elementwise(name, args)


def ghost(
    ledger: Ledger,
    shape: Sequence[float],
    dtype: torch.dtype = torch.float32,
    *,
    counted: bool = True,
) -> torch.Tensor:
    """A tensor of a shape, whose rows may be a fraction.

    Args:
        counted: its bytes count for as long as something refers to it; else they are counted
            elsewhere, and so are those of what is made of it alone.
    """
    size = float(math.prod(shape)) * dtype.itemsize
    return _made(ledger, tuple(shape), dtype, _Room(ledger, size) if counted else None, counted)


def _made(
    ledger: Ledger, shape: Shape, dtype: torch.dtype, room: _Room | None, counted: bool
) -> torch.Tensor:
    made = torch.Tensor._make_subclass(Ghost, _EMPTY)
    made.ledger, made._shape, made._dtype, made.room = ledger, shape, dtype, room
    made.counted, made.whole_rows = counted, True
    return cast(torch.Tensor, made)


def is_ghost(value: object) -> bool:
    """Whether something stands for what is not there."""
    return isinstance(value, Ghost)


def on_ghosts(rule: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call ``rule`` in place of a function that is called with ghosts.

    Where the grid, the exchange and tensors are ghosts, all are: the first argument tells.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def either(*args: P.args, **kwargs: P.kwargs) -> R:
            if getattr(args[0], "ledger", None) is not None:
                return rule(*args, **kwargs)
            return function(*args, **kwargs)

        return either

    return decorate


def changes_first(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel that writes into its first argument, a tensor or sums, and may return it."""

    @wraps(function)
    def either(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0]
        is_one = isinstance(getattr(first, "out", first), Ghost)
        return cast(R, first) if is_one else function(*args, **kwargs)

    return either


# -- rules of torch's operations ------------------------------------------------------------------


def _new(like: Any, shape: Sequence[float], dtype: torch.dtype | None = None) -> torch.Tensor:
    return ghost(like.ledger, shape, dtype or like.dtype, counted=like.counted)


def _view(of: Any, shape: Sequence[float]) -> torch.Tensor:
    return _made(of.ledger, tuple(shape), of.dtype, of.room, of.counted)


def _ghosts(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, Ghost):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _ghosts(value)
    return found


def _elementwise(name: str, args: Any) -> torch.Tensor:
    ghosts = _ghosts(args)
    dims = max(len(one.shape) for one in ghosts)
    shape = [1.0] * dims
    for one in ghosts:
        for at, size in enumerate(reversed(one.shape), 1):
            shape[-at] = max(shape[-at], size)
    like = next((one for one in ghosts if one.counted), ghosts[0])
    types = [one.dtype for one in ghosts if one.dtype.is_floating_point]
    dtype = (
        torch.bool
        if name in _COMPARING
        else (max(types, key=lambda t: t.itemsize) if types else ghosts[0].dtype)
    )
    return _new(like, shape, dtype)


def _getitem(x: Any, key: Any) -> torch.Tensor:
    keys = key if isinstance(key, tuple) else (key,)
    shape: list[float] = []
    dims, copied, narrowed = list(x.shape), False, False
    for one in keys:
        if one is None:
            shape.append(1)
            continue
        size = dims.pop(0)
        if isinstance(one, slice):
            start = one.start or 0
            stop = size if one.stop is None else one.stop
            start, stop = (size + end if end < 0 else end for end in (start, stop))
            shape.append(max(0, min(stop, size) - min(start, size)))
            narrowed = narrowed or (len(shape) > 1 and shape[-1] < size)
        elif isinstance(one, torch.Tensor):
            copied = True
            shape.append(size if one.dtype == torch.bool else one.shape[0])
    shape += dims
    if copied:
        return _new(x, shape)
    seen = _view(x, shape)
    seen.whole_rows = x.whole_rows and not narrowed  # type: ignore[attr-defined]
    return seen


def _cat(tensors: Sequence[Any], dim: int = 0, out: Any = None) -> torch.Tensor:
    if out is not None:
        return cast(torch.Tensor, out)
    like = _ghosts(tensors)[0]
    shape = list(like.shape)
    shape[dim] = sum(one.shape[dim] for one in tensors)
    return _new(like, shape)


def _stack(tensors: Sequence[Any], dim: int = 0) -> torch.Tensor:
    shape = list(_ghosts(tensors)[0].shape)
    shape.insert(dim, len(tensors))
    return _new(_ghosts(tensors)[0], shape)


def _split(x: Any, size: Any, dim: int = 0) -> list[torch.Tensor]:
    """Parts of several sizes, or the first of those of one size: it is as large as any."""
    if isinstance(size, int):
        return [_getitem(x, slice(0, min(size, x.shape[0])))]
    parts, at = [], 0.0
    for count in size:
        parts.append(_getitem(x, (*[slice(None)] * dim, slice(at, at + count))))
        at += count
    return parts


def _reshape(x: Any, *shape: Any) -> torch.Tensor:
    dims = list(shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)
    # The rows of a mean worker are no whole number.
    if dims[0] == math.ceil(x.shape[0]):
        dims[0] = x.shape[0]
    if -1 in dims:
        known = math.prod(size for size in dims if size != -1)
        rest = math.prod(x.shape) / known if known else 0
        dims[dims.index(-1)] = int(rest) if rest == int(rest) else rest
    return _view(x, dims)


def _flatten(x: Any, start: int = 0) -> torch.Tensor:
    return _view(x, (*x.shape[:start], math.prod(x.shape[start:])))


def _unsqueeze(x: Any, dim: int) -> torch.Tensor:
    shape = list(x.shape)
    shape.insert(dim, 1)
    return _view(x, shape)


def _reduced(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> torch.Tensor:
    if dim is None:
        return _new(x, ())
    shape = list(x.shape)
    shape[dim] = 1
    if not keepdim:
        del shape[dim]
    # Without rows, numbers are few.
    return ghost(x.ledger, shape, x.dtype, counted=x.counted and dim != 0)


def _as_type(x: Any, dtype: torch.dtype) -> torch.Tensor:
    return cast(torch.Tensor, x) if x.dtype == dtype else _new(x, x.shape, dtype)


def _to(x: Any, other: Any) -> torch.Tensor:
    if isinstance(other, torch.Tensor):
        return _as_type(x, other.dtype)
    return _as_type(x, other) if isinstance(other, torch.dtype) else cast(torch.Tensor, x)


def _sized(x: Any, *shape: Any, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    dims = shape[0] if shape and isinstance(shape[0], tuple | list) else shape
    return _new(x, dims, dtype)


def _full(x: Any, shape: Any, _value: Any, **_: Any) -> torch.Tensor:
    return _new(x, shape)


def _like(x: Any, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> torch.Tensor:
    return _new(x, x.shape, dtype)


def _linear(x: Any, weight: Any, _bias: Any = None) -> torch.Tensor:
    return _new(x, (*x.shape[:-1], weight.shape[0]))


def _matmul(x: Any, y: Any) -> torch.Tensor:
    like = x if isinstance(x, Ghost) else y
    return _new(like, (*x.shape[:-1], *y.shape[1:]))


def _einsum(equation: str, *operands: Any) -> torch.Tensor:
    """Operands are copied into the layout that a product of matrices wants."""
    read, made = equation.split("->")
    sizes: dict[str, float] = {}
    for letters, one in zip(read.split(","), operands, strict=True):
        sizes |= dict(zip(letters, one.shape, strict=True))
    ghosts = _ghosts(operands)
    result = _new(ghosts[0], [sizes[letter] for letter in made])
    copies = [math.prod(one.shape) * one.dtype.itemsize for one in ghosts if one.counted]
    ghosts[0].ledger.need(sum(copies))
    return result


def _contiguous(x: Any) -> torch.Tensor:
    return cast(torch.Tensor, x) if x.whole_rows else _new(x, x.shape)


_RULES: dict[str, Callable[..., Any]] = {
    "__getitem__": _getitem,
    "cat": _cat,
    "stack": _stack,
    "split": _split,
    "reshape": _reshape,
    "view": _reshape,
    "flatten": _flatten,
    "unsqueeze": _unsqueeze,
    **dict.fromkeys(["sum", "mean", "amax", "amin"], _reduced),
    **{name: lambda x, dtype=dtype: _as_type(x, dtype) for name, dtype in _TYPES.items()},
    "to": _to,
    **dict.fromkeys(["new_empty", "new_zeros", "new_ones"], _sized),
    "new_full": _full,
    **dict.fromkeys(["zeros_like", "ones_like", "empty_like", "full_like"], _like),
    "clone": lambda x: ghost(x.ledger, x.shape, x.dtype),
    "linear": _linear,
    **dict.fromkeys(["matmul", "__matmul__", "__rmatmul__"], _matmul),
    "einsum": _einsum,
    "contiguous": _contiguous,
    "expand_as": lambda x, other: _view(x, other.shape),
    "element_size": lambda x: x.dtype.itemsize,
    "numel": lambda x: math.prod(x.shape),
    "tolist": lambda x: [0.0] * len(x),
    "index_select": lambda x, _dim, index, **_: _new(x, (index.shape[0], *x.shape[1:])),
    "repeat_interleave": lambda x, _lengths, output_size, **_: _new(x, (output_size, *x.shape[1:])),
    "diff": lambda x: _new(x, (max(0, x.shape[0] - 1),)),
}
"""Operations of torch that are neither element by element nor in place: name -> rule."""

# torch's own methods take no fractions of rows.
for _name, _rule in _RULES.items():
    if hasattr(torch.Tensor, _name):
        setattr(Ghost, _name, _rule)
