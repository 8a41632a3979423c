"""Turn pydantic's errors into messages: the path, the value, what is allowed.

Pydantic names Python types and loc tuples; readers of these messages edit a YAML file and need
to know what to change.
"""

from __future__ import annotations

import difflib
import typing
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from embertide.spec.base import FieldProblems

Loc = tuple[str | int, ...]

_LONGEST_VALUE = 60
# Tags of the models' unions; pydantic puts them into paths, but the file has no such keys.
_TAGS = ("<name>", "<index>", "<full>", "<list>", "<auto>", "<grid>")
_TYPES = {
    "string_type": "text (in quotes where YAML would read something else)",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}
_BOUNDS: dict[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "string_pattern_mismatch": ("pattern", "text that matches {}"),
}


def dotted(loc: Loc) -> str:
    """The text form of a path: ``spec.input.edges[0].columns.source``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


def explain(model: type[BaseModel], error: ValidationError) -> list[tuple[Loc, str]]:
    """Every problem once, as (path, message)."""
    found: dict[tuple[Loc, str], None] = {}
    for details in error.errors(include_url=False):
        loc = tuple(part for part in details["loc"] if part not in _TAGS)
        for problem in _explain_one(model, loc, details):
            found[problem] = None
    return list(found)


def _explain_one(model: type[BaseModel], loc: Loc, details: ErrorDetails) -> list[tuple[Loc, str]]:
    kind, context = details["type"], details.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, FieldProblems):
        return [((*loc, *path), message) for path, message in cause.problems]
    if isinstance(cause, ValueError):
        return [(loc, str(cause))]
    if kind == "extra_forbidden":
        return [(loc, _unknown_field(_model_at(model, loc[:-1]), str(loc[-1])))]
    if kind == "missing":
        return [(loc, _missing_field(_model_at(model, loc[:-1]), str(loc[-1])))]
    demand = _demand(kind, context, details)
    if kind in ("model_type", "dict_type"):
        demand += _fields_of(_model_at(model, loc))
    return [(loc, f"is {shorten(details['input'])}; {demand}")]


def _fields_of(model: type[BaseModel] | None) -> str:
    """What a mapping has: those of its fields that it needs, or some, and that {} is enough."""
    if model is None:
        return ""
    fields = {one.alias or name: one.is_required() for name, one in model.model_fields.items()}
    needed = ", ".join(name for name, required in fields.items() if required)
    others = ", ".join(name for name, required in fields.items() if not required)
    if needed:
        return f" with {needed}" + (f", and with some of {others}" if others else "")
    try:
        model.model_validate({})
    except ValidationError:
        return f" with some of {others}"
    return f", {{}} for the defaults, or with some of {others}"


def _demand(kind: str, context: dict[str, Any], details: ErrorDetails) -> str:
    """What the value must be."""
    match kind:
        case "literal_error":
            return _one_of(str(context["expected"]), details["input"])
        case _ if kind in _TYPES:
            return f"must be {_TYPES[kind]}"
        case _ if kind in _BOUNDS:
            name, words = _BOUNDS[kind]
            return "must be " + words.format(context[name])
        case "too_short" | "string_too_short":
            least = context["min_length"]
            return f"must have at least {least} {_unit(kind, least)}"
        case "too_long" | "string_too_long":
            most = context["max_length"]
            return f"must have at most {most} {_unit(kind, most)}"
        case "invalid_key":
            return "keys must be text; put this one in quotes"
        case _:
            return details["msg"]


def _unit(kind: str, count: int) -> str:
    name = "character" if kind.startswith("string") else "item"
    return name if count == 1 else name + "s"


def _one_of(expected: str, value: object) -> str:
    allowed = [name.strip("'") for name in expected.replace(" or ", ", ").split(", ")]
    near = difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.6)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    if len(allowed) == 1:
        return f"must be {allowed[0]!r}" + hint
    return f"allowed: {', '.join(allowed)}" + hint


def _unknown_field(model: type[BaseModel] | None, name: str) -> str:
    allowed = _names(model)
    same = [other for other in allowed if _plain(other) == _plain(name)]
    near = same or difflib.get_close_matches(name, allowed, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"unknown field{hint} Allowed: {', '.join(allowed)}"
        if near
        else (f"unknown field; allowed: {', '.join(allowed)}")
    )


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _missing_field(model: type[BaseModel] | None, name: str) -> str:
    field = _field(model, name)
    description = field.description if field is not None else None
    return f"is required: {description}" if description else "is required"


def shorten(value: object) -> str:
    """A value's ``repr`` for a message, truncated to 60 characters."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _names(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _field(model: type[BaseModel] | None, name: str) -> FieldInfo | None:
    if model is None:
        return None
    fields = model.model_fields
    return next((f for n, f in fields.items() if name in (n, f.alias)), None)


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    """The model at ``loc``; None where there is none."""
    here: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, str):
            field = _field(here, part)
            here = None if field is None else _model_in(field.annotation)
    return here


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model in an annotation such as ``list[EdgeInput] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = map(_model_in, typing.get_args(annotation))
    return next((found for found in inner if found is not None), None)
