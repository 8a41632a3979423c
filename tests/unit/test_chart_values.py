"""The values of the chart: documented, and refused where they are unknown or impossible."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.support import chart
from tools.pages.chart import CHART, values

pytestmark = pytest.mark.needs("helm")

DIGEST = "sha256:" + "0123456789abcdef" * 4
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


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"backoffSeconds": "abc"}, "'/backoffSeconds': got string, want number"),
    ({"backoffSeconds": -1}, "'/backoffSeconds': exclusiveMinimum: got -1, want 0"),
    ({"backoffSeconds": 0}, "'/backoffSeconds'"),
    ({"mistakeSeconds": 0}, "'/mistakeSeconds'"),
    ({"resyncSeconds": 1e9}, "'/resyncSeconds': maximum"),
    ({"staleSeconds": 20}, "staleSeconds (20) must be more than resyncSeconds (20)"),
    ({"operator": {"class": "a_b"}}, "'/operator/class': 'a_b' does not match"),
    ({"replicas": "two"}, "'/replicas': got string, want integer"),
    ({"claimSeconds": 0}, "'/claimSeconds': exclusiveMinimum"),
    ({"leaderElection": {"leaseDurationSeconds": 1.5}}, "'/leaderElection/leaseDurationSeconds'"),
    (
        {"leaderElection": {"leaseDurationSeconds": 10}},
        "leaseDurationSeconds (10) must be more than renewDeadlineSeconds (10)",
    ),
    ({"leaderElection": {"retryPeriodSeconds": 10}}, "more than retryPeriodSeconds (10)"),
    ({"image": {"repository": ""}}, "'/image/repository': '' does not match"),
    ({"image": {"repository": "a b"}}, "'/image/repository'"),
    ({"image": {"repository": "operator:1"}}, "'/image/repository'"),
    ({"image": {"tag": "a/b"}}, "'/image/tag'"),
    ({"image": {"digest": "sha256:abc"}}, "'/image/digest'"),
    ({"image": {"pullPolicy": "Sometimes"}}, "'/image/pullPolicy': value must be one of"),
    ({"image": {"repo": "x"}}, "'/image': additional properties 'repo' not allowed"),
    ({"worker": {"image": "not an image"}}, "'/worker/image'"),
    ({"worker": {"runAsUser": 0}}, "'/worker/runAsUser': minimum: got 0, want 1"),
    ({"maxWorkersPerJob": 2000}, "'/maxWorkersPerJob': maximum: got 2,000, want 1,024"),
    ({"maxRunningWorkers": -1}, "'/maxRunningWorkers': minimum"),
    ({"worker": {"podTemplate": {"specs": {}}}}, "additional properties 'specs' not allowed"),
    ({"worker": {"podTemplate": {"spec": {"restartPolicy": "Never"}}}}, "restartPolicy"),
    ({"worker": {"podTemplate": {"spec": {"tolerations": {}}}}}, "spec/tolerations'"),
    (
        {"worker": {"podTemplate": {"spec": {"containers": [{"name": "worker", "image": "x"}]}}}},
        "containers/0/image'",
    ),
    ({"worker": {"namespaces": {"a b": {}}}}, "'a b'"),
    ({"worker": {"namespaces": {"shop": {"tolerations": []}}}}, "additional properties"),
    ({"worker": {"planner": {"resources": {"limits": {"cpu": "lots"}}}}}, "limits/cpu'"),
    ({"submit": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "'app.kubernetes.io/name'"),
    ({"watchNamespace": "a b"}, "additional properties 'watchNamespace' not allowed"),
    ({"watchNamespaces": "shop"}, "'/watchNamespaces': got string, want null or array"),
    ({"watchNamespaces": ["a b"]}, "'/watchNamespaces/0': 'a b' does not match"),
    ({"watchNamespaces": ["a", "a"]}, "'/watchNamespaces'"),
    ({"podLabels": {"app.kubernetes.io/name": "x"}}, "propertyName 'app.kubernetes.io/name'"),
    (
        {"podLabels": {"app.kubernetes.io/component": "x"}},
        "propertyName 'app.kubernetes.io/component'",
    ),
    ({"podLabels": {"team": "a b"}}, "'/podLabels/team'"),
    ({"podLabels": {"team": 1}}, "'/podLabels/team': got number, want string"),
    ({"commonLabels": {"app.kubernetes.io/instance": "x"}}, "'app.kubernetes.io/instance'"),
    ({"serviceAccount": {"create": False}}, "'/serviceAccount/name': minLength"),
    ({"serviceAccount": {"annotations": {"a": True}}}, "'/serviceAccount/annotations/a'"),
    ({"log": {"level": "loud"}}, "'/log/level': value must be one of"),
    ({"log": {"format": "xml"}}, "'/log/format': value must be one of"),
    ({"extraEnv": [{"name": "EMBERTIDE_PORT", "value": "1"}]}, "'/extraEnv/0/name': 'not' failed"),
    ({"extraEnv": [{"name": "A", "value": 1}]}, "'/extraEnv/0/value'"),
    ({"extraVolumes": [{"name": "x"}]}, "'/extraVolumes/0': minProperties"),
    ({"resources": {"limits": {"memory": "2 GiB"}}}, "'/resources/limits/memory'"),
    ({"resources": {"limit": {}}}, "additional properties 'limit' not allowed"),
    ({"tolerations": [{"key": "a", "effect": "Never"}]}, "'/tolerations/0/effect'"),
    ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "'/topologySpreadConstraints/0'"),
    ({"affinity": {"pods": {}}}, "additional properties 'pods' not allowed"),
    ({"podSecurityContext": {"runAsUser": 0}}, "'/podSecurityContext/runAsUser'"),
    ({"service": {"port": 0}}, "'/service/port': minimum"),
    ({"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}, "needs service.enabled"),
    ({"podMonitor": {"interval": "often"}}, "'/podMonitor/interval'"),
    ({"networkPolicy": {"apiServerPorts": []}}, "'/networkPolicy/apiServerPorts': minItems"),
    ({"networkPolicy": {"apiServerCidrs": ["10.0.0.1"]}}, "'/networkPolicy/apiServerCidrs/0'"),
    ({"dashboards": {"label": "x"}}, "additional properties 'label' not allowed"),
    ({"crds": {"installed": True}}, "additional properties 'installed' not allowed"),
    ({"nonsense": 1}, "additional properties 'nonsense' not allowed"),
    ({"fullnameOverride": "Upper"}, "'/fullnameOverride'"),
    ({"namespaceOverride": "a.b"}, "'/namespaceOverride'"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=lambda given: json.dumps(given)[:60])
def test_what_is_impossible_is_refused(given: dict[str, Any], said: str) -> None:
    assert said in chart.refusal(given)


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


TAKEN: list[dict[str, Any]] = [
    {"backoffSeconds": 0.1, "resyncSeconds": 5, "staleSeconds": 20},
    {"mistakeSeconds": 600},
    {"image": {"repository": "registry.example:5000/team/operator", "digest": DIGEST}},
    {"worker": {"image": f"registry.example/worker:1@{DIGEST}", "runAsUser": None}},
    {"podLabels": {"example.com/team": "search", "sidecar.istio.io/inject": "false"}},
    {"serviceAccount": {"create": False, "name": "prepared"}},
    {"podSecurityContext": {"runAsUser": 1000660000, "runAsGroup": 0, "fsGroup": 0}},
    {"resources": {"limits": {"cpu": 1, "memory": "1.5Gi"}}},
    {"extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
    {"podMonitor": {"interval": "1m30s"}},
    {"global": {"anything": 1}},
]


@pytest.mark.parametrize("given", TAKEN, ids=lambda given: json.dumps(given)[:60])
def test_what_is_possible_is_taken(given: dict[str, Any]) -> None:
    assert chart.render(given)
