"""Who reaches a job's workers under its NetworkPolicy, with the peers that the chart gives."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client import ApiClient

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.api.cache import Cache
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import ROUTES
from embertide_operator.config.settings import Settings
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import child_kinds, children, planner
from embertide_operator.pods.worker_pods import Attempt
from tests.support import chart
from tests.support.network_policies import PodAt, allows
from tests.support.operator_world import SETTINGS, UID, raw_job

pytestmark = pytest.mark.needs("helm")

HTTP, RENDEZVOUS, GLOO = 8080, 29500, 41234
PORTS = (HTTP, RENDEZVOUS, GLOO)


def attempt(uid: str = UID) -> Attempt:
    return Attempt(uid=uid, number=1, version="v", earlier=(), grid=GridShape.of(2, 1))


def job() -> EmbeddingJob:
    found = read_job(raw_job(), SETTINGS)
    assert isinstance(found, EmbeddingJob)
    return found


@pytest.fixture(scope="module")
def deployment() -> dict[str, Any]:
    return chart.only(chart.render(), "Deployment")


@pytest.fixture(scope="module")
def settings(deployment: dict[str, Any]) -> Settings:
    """Those of the chart's own values."""
    return settings_of([deployment])


@pytest.fixture(scope="module")
def policy(settings: Settings) -> dict[str, Any]:
    assert "NetworkPolicy" in child_kinds(settings), "it is on by default"
    return chart.only(children(job(), attempt(), settings), "NetworkPolicy")


def worker(uid: str = UID, namespace: str = "shop") -> PodAt:
    statefulset = children(job(), attempt(uid), SETTINGS)[-1]
    return PodAt(namespace, statefulset["spec"]["template"]["metadata"]["labels"])


def reached(policy: dict[str, Any], source: PodAt) -> set[int]:
    """The ports of a worker that a pod reaches."""
    return {port for port in PORTS if allows([policy], source, worker(), port)}


def test_workers_of_a_job_reach_each_other_on_every_port(policy: dict[str, Any]) -> None:
    assert reached(policy, worker()) == set(PORTS)


def test_workers_of_another_job_reach_nothing(policy: dict[str, Any]) -> None:
    """Nor does an earlier job of the same name, nor a pod of another namespace with all labels."""
    assert reached(policy, worker(uid="another")) == set()
    assert reached(policy, worker(namespace="elsewhere")) == set()


def test_the_operator_reaches_status_and_nothing_else(
    policy: dict[str, Any], deployment: dict[str, Any]
) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert reached(policy, PodAt("tools", labels)) == {HTTP}
    assert reached(policy, PodAt("shop", labels)) == set(), "not the operator: another namespace"


@pytest.mark.parametrize("name", ["prometheus", "vmagent", "alloy", "opentelemetry-collector"])
def test_what_scrapes_metrics_reaches_their_port(policy: dict[str, Any], name: str) -> None:
    assert reached(policy, PodAt("monitoring", {"app.kubernetes.io/name": name})) == {HTTP}


def test_other_pods_reach_nothing(policy: dict[str, Any], settings: Settings) -> None:
    for namespace in ("shop", "tools", "monitoring"):
        assert reached(policy, PodAt(namespace, {"app.kubernetes.io/name": "web"})) == set()
    alone = PodAt("shop", planner(job(), attempt(), settings)["metadata"]["labels"])
    assert reached(policy, alone) == set()


def test_what_is_no_pod_of_the_job_is_not_touched(policy: dict[str, Any]) -> None:
    web = PodAt("shop", {"app": "web"})
    assert allows([policy], PodAt("elsewhere"), web, 80)
    assert allows([policy], PodAt("elsewhere"), worker(uid="another"), HTTP)


def test_egress_stays_open(policy: dict[str, Any]) -> None:
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "egress" not in policy["spec"]


def test_values_turn_it_off_or_name_other_monitors() -> None:
    off = chart.render({"worker": {"networkPolicy": {"enabled": False}}})
    given = settings_of(off)
    assert "NetworkPolicy" not in {c["kind"] for c in children(job(), attempt(), given)}
    assert "NetworkPolicy" not in child_kinds(given)
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "metrics"}}}
    other = settings_of(chart.render({"worker": {"networkPolicy": {"from": [peer]}}}))
    policy = chart.only(children(job(), attempt(), other), "NetworkPolicy")
    assert reached(policy, PodAt("metrics")) == {HTTP}
    assert reached(policy, PodAt("m", {"app.kubernetes.io/name": "prometheus"})) == set()


def test_rights_are_there_as_long_as_it_is_on() -> None:
    for enabled in (True, False):
        objects = chart.render({"worker": {"networkPolicy": {"enabled": enabled}}})
        rules = chart.only(objects, "ClusterRole", "tools:embertide-operator")["rules"]
        groups = {group for rule in rules for group in rule["apiGroups"]}
        assert ("networking.k8s.io" in groups) is enabled


def test_every_kind_of_child_is_watched_and_may_be() -> None:
    values = {"worker": {"podGroups": {"api": "volcano"}}}
    settings = settings_of(chart.render(values))
    assert settings.network_policy
    assert settings.pod_groups == "volcano"
    cache = Cache(KubernetesApi(ApiClient()), (), child_kinds(settings), lambda *_: None)
    assert cache.stores.keys() == {"EmbeddingJob", "Pod", *child_kinds(settings)}
    rules = chart.only(chart.render(values), "ClusterRole", "tools:embertide-operator")["rules"]
    watched = {name for rule in rules if {"list", "watch"} <= {*rule["verbs"]}
               for name in rule["resources"]}  # fmt: skip
    assert {ROUTES[kind][1] for kind in cache.stores} <= watched


def test_a_group_that_was_written_is_found_in_the_cache() -> None:
    kind = "PodGroup.scheduling.volcano.sh"
    cache = Cache(KubernetesApi(ApiClient()), (), [kind], lambda *_: None)
    meta = {"namespace": "shop", "name": "a", "resourceVersion": "7"}
    api_version = "scheduling.volcano.sh/v1beta1"
    cache.written({"apiVersion": api_version, "kind": "PodGroup", "metadata": meta})
    assert cache.get(kind, "shop", "a") is not None


@pytest.mark.parametrize("text", ["{}", "[1]", "[{}]", "peers"])
def test_peers_that_the_api_server_would_refuse_are_refused_at_the_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"EMBERTIDE_HTTP_PEERS .* a JSON list of NetworkPolicy"):
        Settings.from_environment({"EMBERTIDE_HTTP_PEERS": text})


def test_without_peers_only_workers_remain() -> None:
    alone = replace(SETTINGS, network_policy=True)
    policy = chart.only(children(job(), attempt(), alone), "NetworkPolicy")
    assert json.dumps(policy["spec"]["ingress"]).count('"from"') == 1
    assert reached(policy, worker()) == set(PORTS)


def settings_of(objects: list[dict[str, Any]]) -> Settings:
    (container,) = chart.only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return Settings.from_environment({item["name"]: item["value"] for item in container["env"]})


# The operator's own


def metrics_read_by(values: dict[str, Any], source: PodAt) -> bool:
    """Whether a pod reaches ``/metrics`` of the operator of a release with these values."""
    objects = chart.render(values)
    labels = chart.only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    policies = [item for item in objects if item["kind"] == "NetworkPolicy"]
    return allows(policies, source, PodAt("tools", labels), HTTP)


WEB = PodAt("shop", {"app.kubernetes.io/name": "web"})
PROMETHEUS = PodAt("monitoring", {"app.kubernetes.io/name": "prometheus"})


def test_metrics_of_the_operator_are_for_monitors_alone() -> None:
    """They name the jobs and outputs of all tenants."""
    assert not metrics_read_by({}, WEB)
    assert metrics_read_by({}, PROMETHEUS)
    (policy,) = [item for item in chart.render() if item["kind"] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert "egress" not in policy["spec"], "the API server's ports differ between clusters"


def test_values_say_who_reads_the_operators_metrics() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "metrics"}}}
    for values in (
        {"networkPolicy": {"from": [peer]}},
        {"worker": {"networkPolicy": {"from": [peer]}}},
    ):
        assert metrics_read_by(values, PodAt("metrics"))
        assert not metrics_read_by(values, PROMETHEUS)
    nobody: dict[str, Any] = {"worker": {"networkPolicy": {"from": []}}}
    assert not metrics_read_by(nobody, PROMETHEUS)
    assert metrics_read_by({"networkPolicy": {"ingress": False}}, WEB)
