"""Suspending, deleting and waiting; what cannot start says why."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.support.cluster.installation import operator_away
from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster


def test_suspended_in_a_layer_and_resumed(big: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("paused", output, workers=workers(2, 1)))
    with jobs.held("paused", 1, "infer"):
        jobs.patch("paused", {"suspend": True})
        jobs.await_("paused", lambda s: s["phase"] == "Suspended")
    assert jobs.pods() == []
    assert big.leftovers(output) == []
    jobs.patch("paused", {"suspend": False})
    status = jobs.complete("paused")
    assert (status["attempt"], status["failures"]) == (2, 0)
    assert {"Suspended", "Resumed"} <= set(jobs.reasons("paused"))
    big.check(output)


def test_deleted_as_its_containers_start(tiny: Inputs, jobs: Jobs) -> None:
    """A signal that comes before Python listens for it ends the container all the same."""

    def running() -> bool:
        states = [
            container["state"]
            for pod in jobs.pods()
            for container in pod["status"].get("containerStatuses", [])
        ]
        return len(states) == 2 and all("running" in state for state in states)

    for name in ("first", "second"):
        jobs.apply(tiny.job(name, f"{jobs.root}/{name}", workers=workers(2, 1)))
        jobs.cluster.wait_for(running, 60, "containers run")
        jobs.kubectl("delete", "ej", name, "--wait=false")
        jobs.await_no_pods(15)


def test_deleted_while_the_operator_is_down(big: Inputs, jobs: Jobs, operator: str) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("doomed", output))
    with jobs.held("doomed", 1, "ingest"), operator_away(jobs.cluster, operator):
        jobs.kubectl("delete", "ej", "doomed", "--timeout=30s")
        jobs.await_no_pods()
        assert big.versions(output) == []
        assert big.leftovers(output) == []


def test_what_is_missing_is_told_at_once(small: Inputs, jobs: Jobs) -> None:
    """A Secret, a key of one, a ConfigMap: in the table, a condition and one Warning."""
    jobs.kubectl("create", "secret", "generic", "half", "--from-literal=AWS_ACCESS_KEY_ID=x")
    volume = {"name": "more", "configMap": {"name": "no-such-map"}}
    mounting = {"name": "worker", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}
    template = workers(podTemplate={"spec": {"volumes": [volume], "containers": [mounting]}})
    names = {
        "secretless": ("FailedMount", 'secret "nowhere" not found'),
        "keyless": ("FailedMount", "references non-existent secret key: AWS_SECRET_ACCESS_KEY"),
        "mapless": ("FailedMount", 'configmap "no-such-map" not found'),
    }
    manifests = [small.job(name, f"{jobs.root}/{name}") for name in names]
    for manifest, secret in zip(manifests, ("nowhere", "half", "s3"), strict=True):
        manifest["spec"]["storage"]["credentialsSecret"] = secret
    manifests[2]["spec"]["workers"] = template
    jobs.apply(*manifests)
    for name, (reason, words) in names.items():
        ready = find_condition(
            jobs.await_(name, lambda s, r=reason: s.get("stage") == r, 30), "WorkersReady"
        )
        assert (ready["reason"], words in ready["message"]) == (reason, True), ready
        assert jobs.reasons(name)[-1] == reason
    table = jobs.kubectl("get", "ej").splitlines()[1:]
    shown = {line.split()[0]: line.split()[1:3] for line in table}
    assert shown == {name: ["Starting", reason] for name, (reason, _) in names.items()}
    jobs.kubectl("create", "configmap", "no-such-map")
    jobs.complete("mapless")
    for name, (reason, _) in names.items():
        assert jobs.reasons(name).count(reason) == 1


def test_published_before_its_deadline_and_seen_after(
    big: Inputs, jobs: Jobs, operator: str
) -> None:
    """The operator is away while the job publishes, and comes back when it is too late."""
    output = f"{jobs.root}/out"
    jobs.apply(big.job("seen-late", output))
    with ExitStack() as later:
        with jobs.held("seen-late", 1, "ingest"):
            later.enter_context(operator_away(jobs.cluster, operator))
        jobs.cluster.wait_for(lambda: big.versions(output), 120, "the version is published")
        jobs.patch("seen-late", {"activeDeadlineSeconds": 1})
    status = jobs.complete("seen-late")
    assert [status["output"]["version"]] == big.versions(output)
    assert find_condition(status, "Published")["status"] == "True"


def test_somebody_elses_service_is_left_alone(small: Inputs, jobs: Jobs) -> None:
    jobs.kubectl("create", "service", "clusterip", "taken", "--tcp=80")
    before = jobs.kubectl("get", "service", "taken", "-o", "yaml")
    jobs.apply(small.job("taken", f"{jobs.root}/out"))
    status = jobs.await_(
        "taken", lambda s: find_condition(s, "Accepted").get("reason") == "NameConflict"
    )
    assert "Service/taken" in find_condition(status, "Accepted")["message"]
    assert jobs.kubectl("get", "service", "taken", "-o", "yaml") == before


def test_a_gpu_job_waits_for_a_node_that_has_one(small: Inputs, jobs: Jobs) -> None:
    gpu = workers(device="cuda", image="localhost/pause:1")
    job = small.job("gpu", f"{jobs.root}/out", workers=gpu)
    jobs.apply(job)
    status = jobs.await_(
        "gpu", lambda s: find_condition(s, "WorkersReady").get("reason") == "Unschedulable"
    )
    assert "Insufficient nvidia.com/gpu" in find_condition(status, "WorkersReady")["message"]
    jobs.cluster.offer("nvidia.com/gpu", 1)
    try:
        jobs.cluster.wait_for(
            lambda: any(pod["spec"].get("nodeName") == "node-1" for pod in jobs.pods()),
            30,
            "the pod has a node",
        )
        (container,) = jobs.pods()[0]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    finally:
        jobs.cluster.offer("nvidia.com/gpu", 0)
