"""Numbers of nodes and edges, as a module that is recorded sees them.

They are whole numbers like others. Only a comparison that no graph of the proof would show is
refused: one with a number beyond the sizes of these graphs.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from embertide.tracing.record.traced import Traced
from embertide.tracing.record.trials import LARGE
from embertide.tracing.record.user_code import is_users, refuse


class Count(int):
    """A number of nodes or edges; what is computed from it is one, too.

    Attributes:
        rows: the tensor that has as many rows; None for a number that was computed.
    """

    computed = False
    rows: Traced | None = None

    def __bool__(self) -> bool:
        if self.computed:
            _refuse_for(sys._getframe(1))
        return int(self) != 0

    __hash__ = int.__hash__


class Computed(Count):
    """What a module computed from such numbers: any comparison may come from any number."""

    computed = True


def _compares(name: str) -> Callable[[Count, Any], Any]:
    compare = getattr(int, f"__{name}__")
    equal = name in ("eq", "ne")

    def compared(self: Count, other: Any) -> Any:
        known = isinstance(other, Count) or not isinstance(other, (int, float))
        small = 0 <= other <= 1 if equal and not known else known or other < LARGE
        if not known and (self.computed or not small):
            _refuse_for(sys._getframe(1))
        return compare(self, int(other) if isinstance(other, Count) else other)

    return compared


def _computes(name: str) -> Callable[[Count, Any], Any]:
    compute = getattr(int, f"__{name}__")

    def computed(self: Count, other: Any) -> Any:
        result = compute(self, other)
        return Computed(result) if type(result) is int else result

    return computed


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Count, f"__{_name}__", _compares(_name))
for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(Count, f"__{_name}__", _computes(_name))
    setattr(Count, f"__r{_name}__", _computes(f"r{_name}"))


def _refuse_for(frame: Any) -> None:
    """Refuse what a line of the user's does; libraries check shapes."""
    if is_users(frame.f_code.co_filename):
        raise refuse(
            f"{frame.f_code.co_filename}:{frame.f_lineno}",
            "what is done depends on the number of nodes or edges, which the graphs of the proof do"
            f" not show (they have up to {LARGE} nodes); do the same for every graph, or decide by"
            " an argument of the module",
        )


def counted(value: Any, place: int, dim: int | None, of: Traced) -> Any:
    """What a tensor's ``size``, ``shape`` or ``numel`` gives; the number of its rows is a `Count`.

    Args:
        of: the tensor.
        place: the dimension of nodes or edges.
        dim: the dimension whose size was asked for; None for all.
    """
    if isinstance(value, torch.Size):
        return torch.Size(_of(of, size) if at == place else size for at, size in enumerate(value))
    return _of(of, value) if dim in (None, place) else value


def _of(rows: Traced, count: int) -> Count:
    number = Count(count)
    is_rows = not rows.node.whole and isinstance(rows.node.value, torch.Tensor)
    if is_rows and len(rows.node.value) == count:
        number.rows = rows
    return number


@contextmanager
def counted_lengths() -> Iterator[None]:
    """Within it, ``len`` of a traced tensor is a `Count`, which no class can make it."""
    real = builtins.len

    def length(of: Any) -> int:
        count = real(of)
        return _of(of, count) if isinstance(of, Traced) else count

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = real
