"""What a module returns, as results: by node type, and by name where it returns several.

A dict by node type is one result. Any other dict, a tuple, a list or a dataclass has several, whose
names are its keys or fields, ``out0``, ``out1``, ... of a plain tuple, or those given by the user.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from embertide.spec.result_names import RESULT_PATTERN, name_of, node_type_of
from embertide.tracing.record.user_code import refuse

LEFT_OUT = "-"
"""In the place of a name: the result is not wanted."""
HOW_TO_CHOOSE = (
    "--results (results=) names those to keep, in their order, with - for one to leave out"
)


@dataclass(frozen=True)
class Returned:
    """One tensor, or what was returned in its place.

    Attributes:
        node_type: None where the module does not name it.
        name: "" of the only result of its node type.
    """

    node_type: str | None
    name: str
    value: Any

    def matches(self, key: str) -> bool:
        """Whether it is the result with the key."""
        return self.name == name_of(key) and self.node_type in (None, node_type_of(key))

    @property
    def described(self) -> str:
        """For messages: "" of the only result."""
        of = f" for {self.node_type}" if self.node_type else ""
        return f"{f' as {self.name!r}' if self.name else ''}{of}"


def returned(out: Any, node_types: Sequence[str], names: Sequence[str] = ()) -> list[Returned]:
    """All tensors that a module returned, in order; None counts as nothing.

    Args:
        node_types: of the graph, "" in a graph of one.
        names: of the results, by the user; () where the module's own hold.

    Raises:
        ModelError: the names do not fit what is returned, or are no names of folders.
    """
    if _is_by_type(out, node_types):
        return [
            Returned(str(node_type), result.name, result.value)
            for node_type, of_type in out.items()
            if of_type is not None
            for result in returned(of_type, (), names)
        ]
    members = _members(out, names)
    if members is None:
        return [Returned(None, "", out)]
    return [
        Returned(result.node_type, name, result.value)
        for name, value in members
        if value is not None
        for result in _of_name(value, node_types)
    ]


def result_of(out: Sequence[Returned], key: str) -> Any:
    """The tensor with a key of a program's results; None where nothing has it."""
    return next((result.value for result in out if result.matches(key)), None)


def _of_name(value: Any, node_types: Sequence[str]) -> Iterator[Returned]:
    """The tensors of one name, which may be a dict by node type."""
    if not _is_by_type(value, node_types):
        yield Returned(None, "", value)
        return
    for node_type, tensor in value.items():
        if tensor is not None:
            yield Returned(str(node_type), "", tensor)


def _is_by_type(out: Any, node_types: Sequence[str]) -> bool:
    known = {name for name in node_types if name}
    return isinstance(out, Mapping) and bool(known) and bool(known.issuperset(map(str, out)))


def _members(out: Any, names: Sequence[str]) -> list[tuple[str, Any]] | None:
    """(name, value) of each member; None for a value that has none."""
    if isinstance(out, Mapping):
        return _chosen({str(name): value for name, value in out.items()}, names)
    if dataclasses.is_dataclass(out) and not isinstance(out, type | Tensor):
        fields = {field.name: getattr(out, field.name) for field in dataclasses.fields(out)}
        return _chosen(fields, names)
    if isinstance(out, tuple) and hasattr(out, "_fields"):
        return _chosen(dict(zip(out._fields, out, strict=True)), names)
    if isinstance(out, tuple | list):
        return _in_order(out, names)
    return None if not names else _in_order((out,), names)


def _chosen(named: dict[str, Any], names: Sequence[str]) -> list[tuple[str, Any]]:
    """Members that have names: those that are wanted, by default all."""
    for name in names:
        if name not in named:
            raise refuse(
                "", f"forward returns no {name!r}, but {', '.join(named)}; {HOW_TO_CHOOSE}"
            )
    return [(_checked(name), named[name]) for name in names or named]


def _in_order(out: Sequence[Any], names: Sequence[str]) -> list[tuple[str, Any]]:
    """Members without names."""
    if names and len(names) != len(out):
        raise refuse(
            "",
            f"forward returns {len(out)} results, and {len(names)} names were given;"
            f" {HOW_TO_CHOOSE}",
        )
    names = names or [f"out{number}" for number in range(len(out))]
    pairs = zip(names, out, strict=True)
    return [(_checked(name), value) for name, value in pairs if name != LEFT_OUT]


def _checked(name: str) -> str:
    """A name that can be a folder's."""
    if not re.fullmatch(RESULT_PATTERN, name):
        raise refuse(
            "",
            f"{name!r} names a result of forward, but a result's name, also a folder's, has"
            " letters, digits, _, - and . and begins with a letter or digit; rename it",
        )
    return name
