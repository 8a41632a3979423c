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


def test_deleted_in_a_layer(big: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("doomed", output, workers=workers(2, 1)))
    with jobs.held("doomed", 1, "infer"):
        jobs.kubectl("delete", "ej", "doomed", "--wait=false")
        jobs.await_no_pods()
    children = ("get", "sts,svc,cm,pdb", "-l", "embertide.dev/job", "-o", "name")
    jobs.cluster.wait_for(lambda: not jobs.kubectl(*children), 90, "children are gone")
    assert big.versions(output) == []
    assert big.leftovers(output) == []


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


def test_no_room_says_why_and_ends_at_the_deadline(small: Inputs, jobs: Jobs) -> None:
    huge = workers(resources={"requests": {"cpu": "999"}, "limits": {"memory": "1Gi"}})
    job = small.job("huge", f"{jobs.root}/out", workers=huge, preRunningDeadlineSeconds=10)
    jobs.apply(job)
    status = jobs.await_(
        "huge", lambda s: find_condition(s, "WorkersReady").get("reason") == "Unschedulable"
    )
    assert "Insufficient cpu" in find_condition(status, "WorkersReady")["message"]
    status = jobs.fail("huge")
    assert find_condition(status, "Failed")["reason"] == "PreRunningDeadlineExceeded"
    assert "Insufficient cpu" in find_condition(status, "Failed")["message"]


def test_an_image_that_is_not_there(small: Inputs, jobs: Jobs) -> None:
    missing = workers(image="localhost/no-such-image:1")
    job = small.job("products", f"{jobs.root}/out", workers=missing, preRunningDeadlineSeconds=5)
    jobs.apply(job)
    status = jobs.fail("products")
    assert "localhost/no-such-image:1" in status["lastFailure"]["message"]


def test_an_image_that_is_no_worker(small: Inputs, jobs: Jobs) -> None:
    """The operator's image ends at once where it may not use the Kubernetes API."""
    broken = workers(image=jobs.cluster.operator_image)
    jobs.apply(small.job("products", f"{jobs.root}/out", workers=broken, backoffLimit=0))
    status = jobs.fail("products")
    assert status["lastFailure"]["worker"] == "products-0"
    assert status["lastFailure"]["exitCode"] == 2
    assert "worker 0 exited with code 2" in status["lastFailure"]["message"]


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


def test_a_quota_that_refuses_the_pods(small: Inputs, jobs: Jobs) -> None:
    jobs.kubectl("create", "quota", "tight", "--hard=pods=1")
    jobs.apply(small.job("many", f"{jobs.root}/out", workers=workers(2, 1)))
    status = jobs.await_(
        "many", lambda s: find_condition(s, "WorkersReady").get("reason") == "PodsRefused"
    )
    assert "exceeded quota: tight" in find_condition(status, "WorkersReady")["message"]
    jobs.kubectl("delete", "quota", "tight")
    jobs.complete("many")


def test_pod_security_refuses_an_override(small: Inputs, jobs: Jobs) -> None:
    template = {"spec": {"hostNetwork": True}}
    jobs.apply(small.job("bold", f"{jobs.root}/out", workers=workers(podTemplate=template)))
    status = jobs.await_(
        "bold", lambda s: find_condition(s, "WorkersReady").get("reason") == "PodsRefused"
    )
    assert "violates PodSecurity" in find_condition(status, "WorkersReady")["message"]


def test_a_pod_template_that_is_none(small: Inputs, jobs: Jobs) -> None:
    template = {"spec": {"nodeSelector": "big"}}
    jobs.apply(small.job("typo", f"{jobs.root}/out", workers=workers(podTemplate=template)))
    status = jobs.await_(
        "typo", lambda s: find_condition(s, "Accepted").get("reason") == "InvalidSpec"
    )
    assert "nodeSelector: must be a mapping" in find_condition(status, "Accepted")["message"]


def test_somebody_elses_service_is_left_alone(small: Inputs, jobs: Jobs) -> None:
    jobs.kubectl("create", "service", "clusterip", "taken", "--tcp=80")
    before = jobs.kubectl("get", "service", "taken", "-o", "yaml")
    jobs.apply(small.job("taken", f"{jobs.root}/out"))
    status = jobs.await_(
        "taken", lambda s: find_condition(s, "Accepted").get("reason") == "NameConflict"
    )
    assert "Service/taken" in find_condition(status, "Accepted")["message"]
    assert jobs.kubectl("get", "service", "taken", "-o", "yaml") == before


def test_active_deadline(big: Inputs, jobs: Jobs) -> None:
    jobs.apply(big.job("slow", f"{jobs.root}/out"))
    with jobs.held("slow", 1, "infer"):
        jobs.patch("slow", {"activeDeadlineSeconds": 1})
        status = jobs.fail("slow")
    assert find_condition(status, "Failed")["reason"] == "DeadlineExceeded"
    assert "serving on port 8080" in status["failureLog"]
    jobs.await_no_pods()
    assert big.leftovers(f"{jobs.root}/out") == []


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
