"""The chart's life on a cluster: install, run, test, upgrade, uninstall; two releases at once.

Namespaces enforce Pod Security *restricted*. The tests tell one story and run in this order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart_sources import prometheus_operator
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import (
    CHART,
    NAMESPACE,
    RELEASE,
    install,
    options,
    release_values,
)
from tests.support.cluster.jobs import Inputs, Jobs, workers

pytestmark = [pytest.mark.cluster, pytest.mark.needs("chart-sources")]

DEFINITIONS = ("embeddingjobs.embertide.dev", "embeddingschedules.embertide.dev")
USER = 1000660000
"""A user id that no image knows, as OpenShift gives them."""
LEFT = {
    "log": {"level": "info", "format": "json"},
    "podSecurityContext": {"runAsUser": USER, "runAsGroup": 0},
    "priorityClassName": "system-cluster-critical",
}
PLATFORM = {
    "podTemplate": {"metadata": {"annotations": {"cost.example/centre": "ml"}}},
    "namespaces": {"other": {"podTemplate": {"spec": {"nodeSelector": {"no": "node"}}}}},
}
MONITORED = {
    "log": {"level": "warning", "format": "text"},
    "serviceMonitor": {"enabled": True},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "networkPolicy": {"enabled": True},
}
KINDS = (
    "deployment,service,serviceaccount,configmap,networkpolicy,pod,role,rolebinding,"
    "clusterrole,clusterrolebinding,podmonitor,servicemonitor,prometheusrule"
)


class Releases:
    """``left`` in namespace ``a``, with the definition; ``right`` in ``b``, also watching ``c``."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self.cluster = cluster
        self.a, self.b, self.c = (cluster.namespace("chart") for _ in range(3))

    def install(self) -> None:
        """Both at once; returns when their operators are ready."""
        shared = release_values(self.cluster)
        left = shared | LEFT | {"watchNamespaces": [self.a]}
        left["worker"] = left["worker"] | {"runAsUser": USER, **PLATFORM}
        right = shared | {"watchNamespaces": [self.b, self.c], "crds": {"install": False}}
        right["rbac"] = {"aggregate": False}
        for release, namespace, values in (("left", self.a, left), ("right", self.b, right)):
            place = (release, str(CHART), "--namespace", namespace)
            self.cluster.helm("install", *place, *options(values))
        for release, namespace in (("left", self.a), ("right", self.b)):
            self.await_operator(release, namespace)

    def await_operator(self, release: str, namespace: str) -> None:
        """Until the pods of the present Deployment are ready."""
        deployment = f"deployment/{release}-embertide-operator"
        rollout = ("rollout", "status", deployment, "--timeout=180s")
        self.cluster.kubectl("-n", namespace, *rollout)

    def upgrade(self, chart: Path, values: dict[str, Any]) -> None:
        """``helm upgrade`` of ``left``, keeping its other values."""
        place = ("left", str(chart), "--namespace", self.a, "--reuse-values")
        self.cluster.helm("upgrade", *place, *options(values))
        self.await_operator("left", self.a)

    def refused(self) -> set[str]:
        """What the API server has refused to either operator."""
        return {
            f"{user} {event['verb']} {event['requestURI']}"
            for user in (f"{self.a}:left", f"{self.b}:right")
            for event in self.cluster.audit_events(
                f"system:serviceaccount:{user}-embertide-operator"
            )
            if event.get("responseStatus", {}).get("code") == 403
        }


@pytest.fixture(scope="module")
def releases(cluster: KubernetesCluster) -> Iterator[Releases]:
    """Installed where there is no other release, nor a definition; the shared one comes back."""
    shared = RELEASE in cluster.helm("list", "--namespace", NAMESPACE, "--short").split()
    if shared:
        cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    cluster.kubectl("delete", "crd", *DEFINITIONS, "--ignore-not-found", "--timeout=60s")
    made = Releases(cluster)
    try:
        made.install()
        yield made
    finally:
        for release, namespace in (("left", made.a), ("right", made.b)):
            cluster.helm("uninstall", release, "--namespace", namespace, "--ignore-not-found")
        cluster.kubectl("delete", "crd", *DEFINITIONS, "--ignore-not-found", "--timeout=60s")
        for namespace in (made.a, made.b, made.c):
            cluster.discard(namespace)
        if shared:
            install(cluster, RELEASE)


def test_each_release_runs_the_jobs_of_its_namespaces(
    cluster: KubernetesCluster, releases: Releases, tiny: Inputs
) -> None:
    places = [Jobs(cluster, name) for name in (releases.a, releases.b, releases.c)]
    for jobs in places:
        jobs.apply(tiny.job("first", f"{jobs.root}/out", workers=workers()))
    users, centres = {}, {}
    for jobs in places:
        path = f"/apis/apps/v1/namespaces/{jobs.namespace}/statefulsets"
        # They are gone soon after the job has finished.
        (workers_of,) = cluster.wait_for(lambda at=path: cluster.read(at)["items"], 60, "workers")
        template = workers_of["spec"]["template"]
        users[jobs.namespace] = template["spec"]["securityContext"]["runAsUser"]
        annotations = template["metadata"].get("annotations", {})
        centres[jobs.namespace] = annotations.get("cost.example/centre")
    assert centres == {releases.a: "ml", releases.b: None, releases.c: None}
    assert users == {releases.a: USER, releases.b: 65532, releases.c: 65532}
    for jobs in places:
        assert jobs.complete("first")["attempt"] == 1
        tiny.check(f"{jobs.root}/out")
    assert releases.refused() == set()


def test_a_namespace_that_nobody_watches_is_left_alone(
    cluster: KubernetesCluster, releases: Releases, tiny: Inputs
) -> None:
    jobs = Jobs(cluster, cluster.namespace("unwatched"))
    jobs.apply(tiny.job("first", f"{jobs.root}/out", workers=workers()))
    watched = Jobs(cluster, releases.b)
    watched.apply(tiny.job("second", f"{watched.root}/second", workers=workers()))
    watched.complete("second")
    assert jobs.status("first") == {}
    cluster.discard(jobs.namespace)


def test_the_log_is_one_json_object_a_line(cluster: KubernetesCluster, releases: Releases) -> None:
    log = cluster.kubectl("-n", releases.a, "logs", "deployment/left-embertide-operator")
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert f"watching EmbeddingJobs in {releases.a}" in messages
    assert any(f"{releases.a}/first: Completed" in message for message in messages)


def test_helm_test_runs_a_tiny_job_and_leaves_nothing_but_it(
    cluster: KubernetesCluster, releases: Releases
) -> None:
    told = cluster.helm("test", "left", "--namespace", releases.a, "--timeout", "180s")
    assert "Phase:          Succeeded" in told
    (job,) = (
        job
        for name, job in Jobs(cluster, releases.a).statuses().items()
        if name.startswith("left-embertide-tiny-")
    )
    assert (job["phase"], job["output"]["rows"]) == ("Succeeded", 16)
    own = ("-n", releases.a, "get", KINDS.partition(",podmonitor")[0], "-o", "name")
    cluster.wait_for(lambda: "left-embertide-test" not in cluster.kubectl(*own), 30, "it is gone")


def test_the_hook_of_uninstall_removes_nothing_beside_an_operator(
    cluster: KubernetesCluster, releases: Releases
) -> None:
    """As where the output of helm template goes to kubectl apply with the hooks in it."""
    place = ("left", str(CHART), "--namespace", releases.a, "--kube-version=1.36.0")
    values = release_values(cluster) | {"watchNamespaces": [releases.a]}
    only = ("--show-only", "templates/uninstall.yaml")
    hooks = cluster.helm("template", *place, *options(values), *only)
    cluster.kubectl("apply", "-f", "-", input=hooks)
    try:
        job = ("-n", releases.a, "wait", "job/left-embertide-uninstall", "--for=condition=Complete")
        cluster.kubectl(*job, "--timeout=120s")
        log = cluster.kubectl("-n", releases.a, "logs", "job/left-embertide-uninstall")
        assert "the operator is installed" in log
        kept = cluster.kubectl("-n", releases.a, "get", "lease,configmap", "-o", "name").split()
        assert "lease.coordination.k8s.io/left-embertide-operator" in kept
        assert "configmap/operators.embertide.dev" in kept
    finally:
        cluster.kubectl("delete", "-f", "-", input=hooks)


def test_who_may_edit_a_namespace_may_edit_its_jobs(
    cluster: KubernetesCluster, releases: Releases
) -> None:
    for role, user in (("edit", "editor"), ("view", "viewer")):
        binding = (f"--clusterrole={role}", f"--user={user}")
        cluster.kubectl("-n", releases.a, "create", "rolebinding", role, *binding)

    def can(user: str, verb: str, *what: str) -> bool:
        question = ("auth", "can-i", verb, *what, f"--as={user}")
        return cluster.try_kubectl("-n", releases.a, *question).stdout.strip() == "yes"

    cluster.wait_for(lambda: can("editor", "create", "ej"), 30, "roles are aggregated")
    assert can("editor", "get", "ej")
    assert can("viewer", "get", "ej")
    assert not can("viewer", "create", "ej")
    assert can("viewer", "get", "ej", "--subresource=status")
    assert not can("editor", "patch", "ej", "--subresource=status")


def test_an_upgrade_brings_values_monitors_and_new_fields(
    cluster: KubernetesCluster, releases: Releases, tiny: Inputs, tmp_path: Path
) -> None:
    """Also while a job runs, and as prometheus-operator's own definitions want it."""
    for path in prometheus_operator():
        cluster.kubectl("apply", "--server-side", "-f", str(path))
        cluster.kubectl("wait", "--for=condition=Established", "-f", str(path))
    jobs = Jobs(cluster, releases.a)
    job = tiny.job("noted", f"{jobs.root}/noted", suspend=True)
    job["spec"]["note"] = "kept"
    assert 'unknown field "spec.note"' in _try_apply(jobs, job)
    jobs.apply(tiny.job("through", f"{jobs.root}/through", workers=workers(2, 1)))
    releases.upgrade(_with_new_field(tmp_path), MONITORED)
    cluster.wait_for(lambda: '"note":"kept"' in _try_apply(jobs, job), 30, "it is kept")
    assert jobs.complete("through")["failures"] == 0
    found = cluster.kubectl(
        "-n", releases.a, "get", KINDS, "-l", "app.kubernetes.io/instance=left", "-o", "name"
    )
    for name in (
        "podmonitor.monitoring.coreos.com/left-embertide-workers",
        "servicemonitor.monitoring.coreos.com/left-embertide-operator",
        "networkpolicy.networking.k8s.io/left-embertide-operator",
    ):
        assert name in found.split()
    for path in CHART.glob("rules/*.yaml"):
        assert f"prometheusrule.monitoring.coreos.com/left-embertide-{path.stem}" in found
    for path in CHART.glob("dashboards/*.json"):
        assert f"configmap/left-embertide-dashboard-{path.stem}" in found
    assert releases.refused() == set()


def _try_apply(jobs: Jobs, job: dict[str, Any]) -> str:
    """What the API server says to a job, or what it would keep of it."""
    command = ("-n", jobs.namespace, "apply", "--dry-run=server", "-o", "json", "-f", "-")
    tried = jobs.cluster.try_kubectl(*command, input=yaml.safe_dump(job))
    if tried.returncode:
        return tried.stderr
    return json.dumps(json.loads(tried.stdout)["spec"], separators=(",", ":"))


def _with_new_field(folder: Path) -> Path:
    """The chart of a later version, whose jobs have one more field."""
    copy = folder / "embertide"
    shutil.copytree(CHART, copy)
    path = copy / "files" / "embeddingjobs.yaml"
    definition = yaml.safe_load(path.read_text())
    (version,) = definition["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["note"] = {"type": "string"}
    path.write_text(yaml.safe_dump(definition, sort_keys=False))
    return copy


def left_in(cluster: KubernetesCluster, releases: Releases) -> list[str]:
    """What operators, ``helm test`` and the hook of uninstall have made, but users' jobs."""
    found = []
    for namespace in (releases.a, releases.b, releases.c):
        place = ("-n", namespace, "get", "-o", "name")
        kinds = "lease,role,rolebinding,serviceaccount,job.batch,pod,configmap"
        listed = cluster.kubectl(*place, kinds).split()
        found += [name for name in listed if "embertide" in name]
        found += cluster.kubectl(*place, "ej", "-l", "app.kubernetes.io/component=test").split()
    roles = cluster.kubectl("get", "clusterrole,clusterrolebinding", "-o", "name").split()
    return found + [name for name in roles if name.endswith("-uninstall")]


def test_after_uninstall_jobs_are_still_there_and_can_be_deleted(
    cluster: KubernetesCluster, releases: Releases
) -> None:
    for release, namespace in (("left", releases.a), ("right", releases.b)):
        cluster.helm("uninstall", release, "--namespace", namespace, "--wait")
        label = f"app.kubernetes.io/instance={release}"
        found = ("get", KINDS, "--all-namespaces", "-l", label, "-o", "name")
        cluster.wait_for(lambda ask=found: not cluster.kubectl(*ask), 60, "all of it is gone")
    assert left_in(cluster, releases) == []
    jobs = Jobs(cluster, releases.a)
    assert {"first", "through"} <= set(jobs.statuses())
    jobs.kubectl("delete", "ej", "first", "--timeout=30s")
    # Those of the other namespaces go with the definition.
    cluster.kubectl("delete", "crd", *DEFINITIONS, "--timeout=60s")
    jobs.await_no_pods()
