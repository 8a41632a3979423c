"""Grafana's schema of dashboards, by release: what a dashboard has that a release would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError

from tools.dashboards.panels import Json, panels

_FOLDER = Path(__file__).parent / "schemas"
OLDEST, NEWEST = "10.4", "13.2"
RELEASES = (OLDEST, "12.3", NEWEST)

_QUERY = ("Dataquery", "dataquery")
_CUSTOM = ("FieldConfig", "TableFieldOptions")
_ANY = {"type": "object", "additionalProperties": {}}
"""What the schemas write for a value of any type."""


def problems(dashboard: Json, release: str) -> list[str]:
    """Missing properties and values of a wrong type or that a release doesn't know, with paths."""
    return sorted(
        f"{where}: {error.message[:300]}"
        for where, error in _errors(dashboard, release)
        if error.validator != "additionalProperties"
    )


def unknown(dashboard: Json, release: str) -> set[str]:
    """Properties that a release doesn't know, and so passes over: kind of object and name."""
    return {
        f"{where.partition(' ')[0]} {name}"
        for where, error in _errors(dashboard, release)
        if error.validator == "additionalProperties"
        for name in _extra(error)
    }


def _extra(error: ValidationError) -> set[str]:
    value: Any = error.instance
    schema: Any = error.schema
    return set(value) - set(schema["properties"])


def _errors(dashboard: Json, release: str) -> Iterator[tuple[str, ValidationError]]:
    """Every leaf of what the release's schemas find."""
    frame = {**dashboard, "panels": []}
    yield from _check(release, "dashboard", ("Dashboard",), frame, "dashboard")
    for panel in dashboard["panels"]:
        row = panel["type"] == "row"
        name = ("RowPanel",) if row else ("Panel",)
        yield from _check(release, "dashboard", name, panel, f"panel {panel['title']}")
    for panel in panels(dashboard):
        yield from _panel_errors(panel, release)


def _panel_errors(panel: Json, release: str) -> Iterator[tuple[str, ValidationError]]:
    kind, title = panel["type"].replace("-", ""), panel["title"]
    yield from _check(release, kind, ("Options",), panel["options"], f"{kind}.options {title}")
    custom = panel["fieldConfig"]["defaults"].get("custom")
    if custom is not None:
        yield from _check(release, kind, _CUSTOM, custom, f"{kind}.custom {title}")
    for target in panel["targets"]:
        yield from _check(release, "prometheus", _QUERY, target, f"query {title}")


def _check(
    release: str, file: str, names: tuple[str, ...], value: Any, where: str
) -> Iterator[tuple[str, ValidationError]]:
    for error in _validator(release, file, names).iter_errors(value):
        path = "/".join(str(step) for step in error.absolute_path)
        yield f"{where} {path}", error


@cache
def _validator(release: str, file: str, names: tuple[str, ...]) -> Draft7Validator:
    """For one of the names, whichever the release uses."""
    schema = json.loads((_FOLDER / release / f"{file}.json").read_text())
    definitions = {name: _usable(item) for name, item in schema["definitions"].items()}
    name = next(name for name in names if name in definitions)
    return Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": definitions})


def _usable(schema: Any) -> Any:
    """The schema as Grafana reads a dashboard.

    Values of any type are written as objects, kinds of a union overlap, and what has a default is
    among what is required.
    """
    if schema == _ANY:
        return {}
    if isinstance(schema, list):
        return [_usable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    usable = {"anyOf" if key == "oneOf" else key: _usable(item) for key, item in schema.items()}
    if isinstance(schema.get("required"), list):
        known = schema.get("properties", {})
        usable["required"] = [n for n in schema["required"] if "default" not in known.get(n, {})]
    return usable
