"""What changing a field of a job affects. Each field declares it once, where it is defined.

A field inherits what the field that it is in declares, so a new one counts for the result where its
neighbours do; only what differs is declared. From the declarations follow the digest of a job's
result, the hash whose change starts workers again, and what workers get to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Flag, auto
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from embertide.spec.base import SpecModel


class Affects(Flag):
    """As metadata of a field's type: ``Annotated[bool, Affects.OPERATOR]``."""

    RESULT = auto()
    """What a version holds: an attempt takes over only what was made with the same value."""
    WORKERS = auto()
    """How workers run: those that run are started again."""
    OPERATOR = auto()
    """The operator alone reads it: workers get the job without it."""
    NEITHER = 0
    """Where a version goes, or whether one is computed: what runs goes on with the value it has."""


def without(
    model: type[SpecModel], unwanted: Callable[[Affects], bool], inherited: Affects | None = None
) -> Any:
    """The fields of a model to leave out of a dump, as pydantic's ``exclude`` takes them.

    Args:
        unwanted: whether fields that affect so much are left out.
        inherited: what the field declares that the model is in; None: it is in none.

    Raises:
        TypeError: a field declares nothing, and is in none that does.
    """
    return _excluded(model, unwanted, inherited)


def _excluded(
    model: type[SpecModel], unwanted: Callable[[Affects], bool], inherited: Affects | None
) -> dict[str, Any]:
    excluded: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        affects = _declared(field, inherited)
        if affects is None:
            raise TypeError(f"{model.__name__}.{name} does not declare what it affects")
        part = _part(field, unwanted, affects)
        if part:
            excluded[name] = part
    return excluded


def _part(field: FieldInfo, unwanted: Callable[[Affects], bool], affects: Affects) -> Any:
    """What of a field is left out: True for all of it, False for nothing."""
    nested = next(_models(field.annotation), None)
    if nested is None:
        return unwanted(affects)
    inside = _excluded(nested, unwanted, affects)
    if inside == dict.fromkeys(nested.model_fields, True):
        return True
    return {"__all__": inside} if inside and _is_list(field.annotation) else inside


def _declared(field: FieldInfo, inherited: Affects | None) -> Affects | None:
    return next((item for item in field.metadata if isinstance(item, Affects)), inherited)


def _models(annotation: Any) -> Iterator[type[SpecModel]]:
    """The models in a type such as ``list[EdgeInput] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(map(_is_list, get_args(annotation)))
