"""The chart as a dependency of another chart, by helm 3 and 4: conditions, tags, globals, nulls.

A null in the values of an umbrella chart takes a default away.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import chart
from tools.pages.chart import CHART, values

pytestmark = pytest.mark.needs("helm", "helm4")

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
UMBRELLA = {
    "apiVersion": "v2",
    "name": "platform",
    "version": "1.0.0",
    "dependencies": [
        {"name": "embertide", "version": "*", "condition": "embertide.enabled", "tags": ["ml"]}
    ],
}


@dataclass(frozen=True)
class Umbrella:
    """A chart whose one dependency is ours, in the hands of one helm."""

    folder: Path
    helm: str


@pytest.fixture(scope="module", params=["helm", "helm4"])
def umbrella(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Umbrella:
    folder = tmp_path_factory.mktemp("umbrella")
    (folder / "Chart.yaml").write_text(yaml.safe_dump(UMBRELLA))
    (folder / "values.yaml").write_text("{}")
    (folder / "templates").mkdir()
    shutil.copytree(CHART, folder / "charts" / "embertide")
    return Umbrella(folder, request.param)


def rendered(umbrella: Umbrella, values: dict[str, Any]) -> list[chart.Object]:
    return chart.render(values, chart=umbrella.folder, helm=umbrella.helm)


def has_operator(objects: list[chart.Object]) -> bool:
    return any(item["kind"] == "Deployment" for item in objects)


def test_a_condition_switches_it_on_and_off(umbrella: Umbrella) -> None:
    assert has_operator(rendered(umbrella, {"embertide": {"enabled": True}}))
    assert rendered(umbrella, {"embertide": {"enabled": False}}) == []


def test_tags_switch_it_off(umbrella: Umbrella) -> None:
    assert rendered(umbrella, {"tags": {"ml": False}}) == []
    assert has_operator(rendered(umbrella, {"tags": {"ml": True}}))
    tagged = chart.template({"tags": {"ml": False}, "enabled": True}, helm=umbrella.helm)
    assert tagged.returncode == 0, "the chart by itself takes the same values"


def test_lint_takes_a_condition(umbrella: Umbrella) -> None:
    linted = chart.run(
        *(umbrella.helm, "lint", "--strict", str(umbrella.folder), "--values", "-"),
        *("--kube-version", "1.36.3"),
        input=json.dumps({"embertide": {"enabled": True}, "global": {"region": "eu"}}),
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr


def optional() -> Iterator[tuple[str, ...]]:
    """The paths of values that may be null."""
    for value in values():
        path = tuple(value.path.split("."))
        schema = _schema(path)
        if schema is not None and _takes_null(schema):
            yield path


def _schema(path: tuple[str, ...]) -> dict[str, Any] | None:
    result: dict[str, Any] = SCHEMA
    for key in path:
        if key not in result.get("properties", {}):
            return None
        result = _resolved(result["properties"][key])
    return result


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


def _takes_null(schema: dict[str, Any]) -> bool:
    parts = [_resolved(part) for part in schema.get("allOf", ()) if "$ref" in part] or [schema]
    return all("null" in part.get("type", ()) or None in part.get("enum", ()) for part in parts)


def _nulls(paths: list[tuple[str, ...]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for *outer, last in paths:
        at = result
        for key in outer:
            at = at.setdefault(key, {})
        at[last] = None
    return result


def test_what_is_optional_may_be_null(umbrella: Umbrella) -> None:
    """All of it at once; where the default is empty the outcome is the same."""
    paths = list(optional())
    assert len(paths) > 30
    empty = [path for path in paths if not _default(path)]
    assert rendered(umbrella, {"embertide": _nulls(empty)}) == rendered(umbrella, {})
    whole = [path for path in paths if not any(path[:n] in paths for n in range(1, len(path)))]
    assert has_operator(rendered(umbrella, {"embertide": _nulls(whole)}))
    assert has_operator(chart.render(_nulls(whole), helm=umbrella.helm))


def _default(path: tuple[str, ...]) -> Any:
    result: Any = DEFAULTS
    for key in path:
        result = result[key]
    return result


def test_every_other_value_is_required() -> None:
    """Without it a template would write nothing in its place, or end with a nil pointer."""
    for value in values():
        path = tuple(value.path.split("."))
        schema = _schema(path)
        if schema is None or _takes_null(schema):
            continue
        above = _schema(path[:-1])
        assert above is not None
        assert path[-1] in above.get("required", ()), value.path


@pytest.mark.parametrize(
    "path", ["worker", "resyncSeconds", "maxRunningJobs", "rbac.create", "leaderElection"]
)
def test_what_is_required_may_not_be_null(umbrella: Umbrella, path: str) -> None:
    nulls = {"embertide": _nulls([tuple(path.split("."))])}
    result = chart.template(nulls, chart=umbrella.folder, helm=umbrella.helm)
    assert result.returncode != 0
    assert f"missing property '{path.rpartition('.')[2]}'" in result.stderr


def test_a_null_takes_an_amount_away(umbrella: Umbrella) -> None:
    resources = {"limits": {"cpu": None, "memory": None}, "requests": {"cpu": "1"}}
    changed = {"embertide": {"resources": resources, "submit": {"resources": resources}}}
    objects = rendered(umbrella, changed)
    for pod in (chart.only(objects, "Deployment")["spec"]["template"], chart.only(objects, "Pod")):
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["requests"]["cpu"] == "1"
        assert "limits" not in container["resources"]


def test_a_null_within_the_workers_template_reaches_the_operator(umbrella: Umbrella) -> None:
    template = {"spec": {"tolerations": None, "nodeSelector": {"pool": "batch"}}}
    objects = rendered(umbrella, {"embertide": {"worker": {"podTemplate": template}}})
    (container,) = chart.only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert json.loads(env["EMBERTIDE_POD_TEMPLATE"])["spec"]["nodeSelector"] == {"pool": "batch"}
