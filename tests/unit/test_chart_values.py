"""The values of the chart: documented, and refused where they are unknown or impossible."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support import chart
from tests.support.chart_texts import refusals
from tests.support.expected import Expected, inputs
from tools.pages.chart import CHART, values

pytestmark = pytest.mark.needs("helm")

FILE = "chart/refused.txt"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def test_every_value_is_documented_and_in_the_schema() -> None:
    documented = {value.path for value in values()}
    assert _paths(SCHEMA) - {"global", "enabled", "tags"} == {
        path for path in documented if path.count(".") < 2
    }
    sections = {path.partition(".")[0] for path in documented}
    assert sections == set(DEFAULTS)


def _paths(schema: dict[str, Any]) -> set[str]:
    """The schema's values: what values.yaml has comments for, one or two levels deep."""
    found: set[str] = set()
    for name, inner in schema["properties"].items():
        found.add(name)
        if _is_section(name):
            found |= {f"{name}.{key}" for key in _resolve(inner)["properties"]}
    return found


def _is_section(name: str) -> bool:
    return any(value.path.startswith(f"{name}.") for value in values())


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        found: dict[str, Any] = SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[-1]]
        return found
    return schema


def test_every_object_of_the_schema_refuses_unknown_keys() -> None:
    """But those that are Kubernetes' own, which the API server checks."""
    open_objects = {
        place
        for place, schema in _objects(SCHEMA, "")
        if "properties" in schema and schema.get("additionalProperties") is not False
    }
    assert open_objects == {"definitions.volume", "definitions.podTemplate.spec"}


def _objects(schema: Any, place: str) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return []
    is_object = schema.get("type") in ("object", ["object", "null"])
    found = [(place, schema)] if is_object else []
    for key, inner in schema.items():
        below = place if key == "properties" else f"{place}.{key}".strip(".")
        found += _objects(inner, below)
    return found


@pytest.mark.parametrize("name", inputs(FILE))
def test_what_is_refused_and_why(name: str, expected: Expected) -> None:
    case = inputs(FILE)[name]
    expected.check(FILE, name, f"{case}--\n{refusals(case)}", inputs(FILE))


@pytest.mark.parametrize("release", ["2nd", "shop.v2"])
def test_a_release_whose_name_no_service_may_have_needs_another(release: str) -> None:
    made = chart.template({}, release=release)
    assert f'the name "{release}-embertide" begins with a digit or has a dot' in made.stderr
    rendered = chart.render({"fullnameOverride": "second"}, release=release)
    (tested,) = (
        yaml.safe_load(item["data"]["job.yaml"])
        for item in rendered
        if item["kind"] == "ConfigMap" and "job.yaml" in item.get("data", {})
    )
    assert tested["metadata"]["name"] == "second-tiny", "a job's name begins with a letter, too"
