"""Dataclasses as plain values and back, by the types of their fields."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any, Self, Union, get_args, get_origin, get_type_hints


class Plain:
    """A dataclass that goes through JSON.

    Its fields are what JSON has, dataclasses and named tuples, and lists, tuples and dicts of these
    by text. A class whose plain values have another form has methods of these names itself.
    """

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` described, also after a trip through JSON.

        Args:
            data: fields that it lacks have their defaults; those of the right class stay.

        Raises:
            TypeError: it has other fields, or lacks one without a default.
        """
        made: Self = _fields(cls)(data)  # type: ignore[arg-type]
        return made


def _same(value: Any) -> Any:
    return value


@cache
def _fields(kind: type) -> Callable[[Any], Any]:
    """Makes a dataclass of its plain fields."""
    hints = get_type_hints(kind)
    readers = {name: made for name, hint in hints.items() if (made := _reader(hint)) is not None}

    def read(data: Any) -> Any:
        if isinstance(data, kind):
            return data
        return kind(**data | {of: made(data[of]) for of, made in readers.items() if of in data})

    return read


@cache
def _reader(hint: Any) -> Callable[[Any], Any] | None:
    """Makes a value of a type of what JSON has of it; None where that is the same."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        own: Callable[[Any], Any] | None = getattr(hint, "from_json", None)
        return own if own is not None and "from_json" in vars(hint) else _fields(hint)
    if isinstance(hint, type) and issubclass(hint, tuple):
        of = [_reader(kind) or _same for kind in get_type_hints(hint).values()]
        return lambda data: hint(*(read(value) for read, value in zip(of, data, strict=False)))
    if origin in (Union, types.UnionType):
        some = [read for kind in inner if (read := _reader(kind)) is not None]
        return None if not some else lambda data: None if data is None else some[0](data)
    each = _reader(inner[-1 if origin in (dict, Mapping) else 0]) if inner else None
    if origin is tuple:
        return tuple if each is None else lambda data: tuple(map(each, data))
    if each is None or origin not in (dict, Mapping, list, Sequence):
        return None
    if origin in (dict, Mapping):
        return lambda data: {name: each(value) for name, value in data.items()}
    return lambda data: list(map(each, data))
