"""docs/api.md and docs/api/: every field of EmbeddingJob, from the custom resource definition."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from embertide.spec import naming
from embertide.spec.base import VALIDATIONS, Uri
from embertide.spec.crd import crd, shown_default

Schema = dict[str, Any]

_URI: Schema = TypeAdapter(Uri).json_schema()
_ANY_FIELDS = "x-kubernetes-preserve-unknown-fields"
_BOUNDS = (
    ("minimum", "maximum", ""),
    ("minItems", "maxItems", " items"),
)
PAGES = {
    "api.md": ("spec", "what must hold, the fields of `spec`"),
    "api/input.md": ("spec.input", "edges, nodes, features, pairs: where and what they are"),
    "api/running.md": (
        "spec.model spec.inference spec.workers spec.storage spec.refresh",
        "the model, targets, workers, access to stores, refresh",
    ),
    "api/output.md": (
        "spec.output spec.freshness spec.push",
        "what is published, gate, delta, freshness, the index",
    ),
    "api/status.md": ("status", "phase, conditions, plan, progress, version, push"),
    "api/report.md": ("status.report", "what the run that published did, in total"),
}
"""Page -> the objects that it begins with, and what they are."""
_ALIKE = 5
"""An object with as many fields of an earlier one refers to it for them."""


@dataclass(frozen=True)
class Row:
    """A field; ``inner`` is the path of the object that it, or an item of it, is."""

    name: str
    type: str
    default: str
    meaning: str
    inner: str = field(compare=False)


@dataclass(frozen=True)
class Object:
    """An object of the definition, and what must hold across its fields."""

    path: str = field(compare=False)
    rows: tuple[Row, ...]
    rules: tuple[str, ...]

    def alike(self, other: Object) -> bool:
        """Whether it is described by the other one in part."""
        return len(set(self.rows) & set(other.rows)) >= _ALIKE


def page(name: str) -> str:
    """The text of one of `PAGES`."""
    definition = crd()["spec"]
    (version,) = definition["versions"]
    root = version["schema"]["openAPIV3Schema"]
    lines = [f"# EmbeddingJob: {PAGES[name][0].replace(' ', ', ')}\n"]
    if name == "api.md":
        names = definition["names"]
        lines = [
            "# EmbeddingJob\n",
            f"`apiVersion: {definition['group']}/{version['name']}`, `kind: {names['kind']}`; short"
            f" name `{naming.SHORT_NAME}`, {definition['scope'].lower()}. {root['description']}\n",
            "These pages are generated from the custom resource definition that the chart",
            "installs; `kubectl explain ej.spec` shows the same. A field that is not listed is",
            "refused. Paths in brackets `[]` are of every item of a list. Fields that several",
            "objects have in common, with their rules, are described once.\n",
            *(f"- [{path}]({path}): {about}" for path, (_, about) in PAGES.items() if path != name),
            "\n## What must hold\n",
            *_rules(root),
            f"\n## URIs\n\nAt most {_URI['maxLength']} characters; {_messages(_URI)}.\n",
        ]
    described: dict[Object, str] = {}  # -> the path of the first that is the same
    same = dict[str, str]()
    for start in ("spec", "status"):
        for found in _objects(start, root["properties"][start]):
            same[found.path] = described.setdefault(found, found.path)
    for found in described:
        if _page(found.path) == name:
            lines += _section(found, list(described), same)
    return "\n".join(lines).rstrip() + "\n"


def _messages(schema: Schema) -> str:
    return "; ".join(rule["message"] for rule in schema[VALIDATIONS])


def _objects(path: str, schema: Schema) -> Iterator[Object]:
    """An object, then those in it."""
    rows, inner = [], []
    required = schema.get("required", ())
    for name, value in schema["properties"].items():
        item, at = value, f"{path}.{name}"
        while "items" in item and item.get("type") == "array":
            item, at = item["items"], f"{at}[]"
        meaning, described = _meaning(value, bounds=path.startswith("spec"))
        default = "required" if name in required else _default(value) or described
        is_object = "properties" in item
        rows.append(Row(f"`{name}`", _type(value), default, meaning, at if is_object else ""))
        if is_object:
            inner.append((at, item))
    yield Object(path, tuple(rows), tuple(_rules(schema)))
    for at, item in inner:
        yield from _objects(at, item)


def _section(found: Object, objects: list[Object], same: dict[str, str]) -> Iterator[str]:
    yield f"## {found.path}\n"
    before = next((one for one in objects[: objects.index(found)] if found.alike(one)), None)
    left = set[object]()
    if before is not None:
        left = {*before.rows, *before.rules}
        names = ", ".join(row.name for row in found.rows if row in left)
        yield f"Described with {_link(before.path, before.path, found.path)}: {names}.\n"
    defaults = found.path.startswith("spec") and any(row.default for row in found.rows)
    yield "| field | type |" + " default |" * defaults + " meaning |"
    yield "|---|---|" + "---|" * defaults + "---|"
    for row in found.rows:
        if row not in left:
            kind = _link(row.type, same[row.inner], found.path) if row.inner else row.type
            default = f" {row.default} |" * defaults
            yield f"| {row.name} | {kind} |{default} {row.meaning} |"
    rules = [rule for rule in found.rules if rule not in left]
    yield "\n".join(["", *rules, ""] if rules else [""])


def _link(text: str, path: str, origin: str) -> str:
    """A link to the section of an object from that of another."""
    to, here = _page(path), _page(origin)
    to = "" if to == here else posixpath.relpath(to, posixpath.dirname(here) or ".")
    return f"[{text}]({to}#{re.sub(r'[^a-z0-9]', '', path.lower())})"


def _page(path: str) -> str:
    """Where an object is described: the page of its longest prefix."""
    starts = ((start, name) for name, (paths, _) in PAGES.items() for start in paths.split())
    return max(pair for pair in starts if f"{path}.".startswith((f"{pair[0]}.", f"{pair[0]}[")))[1]


def _rules(schema: Schema) -> Iterator[str]:
    """What the API server checks across the fields of an object.

    Rules of several fields in the same words are one, and so are those that differ in their end.
    """
    found: dict[str, list[str]] = {}
    for rule in schema.get(VALIDATIONS, ()):
        at, message = rule.get("fieldPath", "").lstrip("."), _cell(rule["message"])
        if message.startswith("spec."):
            at, _, message = message.partition(" ")
        elif at and message.startswith(at):
            message = message.removeprefix(at).lstrip()
        found.setdefault(message, []).append(at)
    ends: dict[tuple[str, str], list[str]] = {}
    for message, fields in found.items():
        names = ", ".join(f"`{name}`" for name in fields if name)
        start, inside, end = message.partition(" lies inside ")
        ends.setdefault((names, start + inside), []).append(end)
    for (names, start), several in ends.items():
        yield f"- {names} {start}".replace("-  ", "- ") + "; or ".join(several)


def _type(schema: Schema) -> str:
    if _is_uri(schema):
        return "URI"
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
        return "string or integer"
    kind: str = schema["type"]
    return kind


def _is_uri(schema: Schema) -> bool:
    return bool(schema.get(VALIDATIONS) == _URI[VALIDATIONS])


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default in (None, {}) else f"`{shown_default(default)}`"


def _meaning(schema: Schema, bounds: bool) -> tuple[str, str]:
    """The description with the bounds and rules of the field itself, and the default in it."""
    inner = schema.get("items", {}) if schema.get("type") == "array" else {}
    description, _, default = schema.get("description", "").partition(" Default: ")
    default = f"`{default.removesuffix('.')}`" if default else ""
    if _is_uri(schema) or not bounds:
        return _cell(description), default
    rules = [] if _is_uri(inner) else [*schema.get(VALIDATIONS, ()), *inner.get(VALIDATIONS, ())]
    if "properties" in schema or "properties" in inner:
        rules = []  # they stand in the object's own section
    limits = [*_bounds(schema), *(rule["message"] for rule in rules)]
    parts = [description, *map(_sentence, limits)]
    return _cell(" ".join(part for part in parts if part)), default


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
    """Text with no sign that Markdown takes for markup."""
    return re.sub(r"[|*<]|(?<!\w)_", r"\\\g<0>", text)
