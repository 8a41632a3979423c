"""docs/api.md: every field of EmbeddingJob, from the custom resource definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from embertide.spec import naming
from embertide.spec.base import VALIDATIONS, Uri
from embertide.spec.crd import crd

Schema = dict[str, Any]

_URI: Schema = TypeAdapter(Uri).json_schema()
_ANY_FIELDS = "x-kubernetes-preserve-unknown-fields"
_WORDS = {"integer": "whole number", "string": "text", "boolean": "true, false"}
_BOUNDS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)


def page() -> str:
    """The whole page."""
    definition = crd()["spec"]
    (version,) = definition["versions"]
    root = version["schema"]["openAPIV3Schema"]
    names = definition["names"]
    lines = [
        "# EmbeddingJob",
        "",
        f"`apiVersion: {definition['group']}/{version['name']}`, `kind: {names['kind']}`;"
        f" short name `{naming.SHORT_NAME}`, {definition['scope'].lower()}. {root['description']}",
        "",
        "This page is generated from the custom resource definition that the chart installs;",
        "`kubectl explain ej.spec` says the same. A field that is not listed is refused. Paths in",
        "brackets `[]` are of every item of a list.",
        "",
        "## What must hold",
        "",
        *_rules(root),
        "",
        "## URIs",
        "",
        f"At most {_URI['maxLength']} characters; {_messages(_URI)}.",
        "",
    ]
    for name in ("spec", "status"):
        lines += _object(name, root["properties"][name])
    return "\n".join(lines).rstrip() + "\n"


def _messages(schema: Schema) -> str:
    return "; ".join(rule["message"] for rule in schema[VALIDATIONS])


def _object(path: str, schema: Schema) -> Iterator[str]:
    """The section of one object, then those of the objects in it."""
    yield f"## {path}\n"
    if "description" in schema:
        yield f"{schema['description']}\n"
    yield "| field | type | default | meaning |\n|---|---|---|---|"
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {_meaning(field)} |"
    yield ""
    rules = list(_rules(schema))
    if rules:
        yield "\n".join(rules) + "\n"
    for name, field in schema["properties"].items():
        inner, at = field, f"{path}.{name}"
        while "items" in inner and inner.get("type") == "array":
            inner, at = inner["items"], f"{at}[]"
        if "properties" in inner:
            yield from _object(at, inner)


def _rules(schema: Schema) -> Iterator[str]:
    """What the API server checks across the fields of an object."""
    for rule in schema.get(VALIDATIONS, ()):
        at, message = rule.get("fieldPath", "").lstrip("."), rule["message"]
        yield f"- {_cell(message)}" if message.startswith(at) else f"- `{at}` {_cell(message)}"


def _type(schema: Schema) -> str:
    if _is_uri(schema):
        return "[URI](#uris)"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get(_ANY_FIELDS) and "pattern" in schema:
        word = f"`{schema['pattern'].strip('^$')}`"
        return f"{word} or {'list' if 'items' in schema else 'object'}"
    if schema.get(_ANY_FIELDS):
        return "object, any fields"
    if schema.get("x-kubernetes-int-or-string"):
        return "text or whole number"
    kind: str = schema["type"]
    return _WORDS.get(kind, kind)


def _is_uri(schema: Schema) -> bool:
    return bool(schema.get(VALIDATIONS) == _URI[VALIDATIONS])


def _default(schema: Schema) -> str:
    if schema.get("default") in (None, {}):
        return ""
    return f"`{json.dumps(schema['default'], ensure_ascii=False)}`".replace('"', "")


def _meaning(schema: Schema) -> str:
    """The description with the bounds and rules of the field itself."""
    inner = schema.get("items", {}) if schema.get("type") == "array" else {}
    if _is_uri(schema):
        return _cell(schema["description"])
    rules = [
        rule["message"] for rule in (*schema.get(VALIDATIONS, ()), *inner.get(VALIDATIONS, ()))
    ]
    if "properties" in schema or "properties" in inner:
        rules = []  # said in the object's own section
    said = [schema.get("description", ""), *map(_sentence, [*_bounds(schema), *rules])]
    return _cell(" ".join(part for part in said if part))


def _bounds(schema: Schema) -> Iterator[str]:
    """Such as "at least 1", "more than 0" or "1 to 63 characters"."""
    for low, high, unit in _BOUNDS:
        least, most = schema.get(low), schema.get(high)
        open_ends = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if least is not None and most is not None and not any(open_ends):
            yield (f"{least} to {most}" if least != most else f"exactly {least}") + unit
            continue
        ends = []
        if least is not None:
            ends.append(f"{'more than' if open_ends[0] else 'at least'} {least}{unit}")
        if most is not None:
            ends.append(f"{'less than' if open_ends[1] else 'at most'} {most}{unit}")
        if ends:
            yield " and ".join(ends)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
