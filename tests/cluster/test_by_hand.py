"""What people do to a job's objects by hand: edits are put right, what is lost ends the attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from embertide_operator.job import ownership
from tests.support.cluster.jobs import RESTRICTED, Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster

# Values that the API server writes in another form, or leaves out; they are no edits.
_TEMPLATE = {
    "metadata": {"annotations": {"team": "search"}},
    "spec": {
        "nodeSelector": {},
        "hostNetwork": False,
        "tolerations": [{"key": "spot", "operator": "Exists", "value": ""}],
        "containers": [
            {
                "name": "worker",
                "env": [{"name": "NOTHING", "value": ""}],
                "resources": {"limits": {"ephemeral-storage": "1024Mi"}},
                "volumeMounts": [{"name": "cache", "mountPath": "/cache", "readOnly": False}],
            }
        ],
        "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1024Mi"}}],
    },
}
_HELD = "embertide.dev/held-by-a-test"


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def await_pods(jobs: Jobs, name: str, attempt: int) -> None:
    """Wait until the operator has seen both pods of an attempt."""
    jobs.await_(
        name,
        lambda s: s["attempt"] == attempt and all(s["workers"].get("pods") or [""]),
    )


def test_edits_are_put_right_and_lost_objects_end_their_attempt(
    big: Inputs, jobs: Jobs, operator: str
) -> None:
    output = f"{jobs.root}/out"
    spec = workers(2, 1, podTemplate=_TEMPLATE)
    jobs.apply(big.job("edited", output, workers=spec, backoffLimit=0))

    def read(kind: str, path: str) -> str:
        return jobs.kubectl("get", kind, "edited", "-o", f"jsonpath={{{path}}}")

    image = ".spec.template.spec.containers[0].image"
    with jobs.held("edited", 1, "ingest"):
        right = read("sts", image), read("cm", ".data"), read("svc", ".spec.ports[*].port")
        jobs.kubectl("set", "image", "sts/edited", "worker=localhost/other:1")
        jobs.kubectl("scale", "sts/edited", "--replicas=3")
        jobs.kubectl("patch", "cm", "edited", "-p", '{"data": {"job.json": "{}"}}')
        jobs.kubectl("patch", "svc", "edited", "--type=json", "-p",
                     '[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]')  # fmt: skip
        jobs.cluster.wait_for(
            lambda: (
                read("sts", ".spec.replicas") == "2"
                and right[:2] == (read("sts", image), read("cm", ".data"))
                and set(right[2].split()) <= set(read("svc", ".spec.ports[*].port").split())
            ),
            30,
            "edits are put right",
        )
        status = jobs.status("edited")
        assert (status["attempt"], "lastFailure" in status) == (1, False)
        jobs.kubectl("delete", "sts", "edited", "--wait=false")
        statuses = [jobs.await_("edited", lambda s: s.get("disruptions") == 1)]
        # Workers that go on before they are asked to stop publish within a second.
        jobs.cluster.wait_for(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in jobs.pods()),
            60,
            "the pods are being stopped",
        )
    await_pods(jobs, "edited", 2)
    jobs.kubectl("delete", "pod", "edited-1", "--wait=false")
    statuses.append(jobs.await_("edited", lambda s: s["disruptions"] == 2))
    await_pods(jobs, "edited", 3)
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    jobs.kubectl("patch", "pod", "edited-1", "--subresource=status", "-p",
                 json.dumps({"status": evicted}))  # fmt: skip
    statuses.append(jobs.await_("edited", lambda s: s["disruptions"] == 3))
    told = [status["lastFailure"]["message"] for status in statuses]
    assert told[0] == "the workers were disrupted: their StatefulSet was deleted"
    # The StatefulSet replaces them at once: the operator sees them going, or gone, or others.
    assert all(text.startswith("worker 1 was disrupted: ") for text in told[1:]), told
    ended = [find_condition(s, "Progressing")["lastTransitionTime"] for s in statuses]
    pauses = [seconds_between(end, s["retryTime"]) for end, s in zip(ended, statuses, strict=True)]
    assert pauses == [2, 4, 8]
    status = jobs.complete("edited")
    assert (status["attempt"], status["failures"]) == (4, 0)
    assert len({s["versions"][-1] for s in [*statuses, status]}) == 4
    big.check(output)
    assert big.leftovers(output) == []
    patches = [
        event["objectRef"]
        for event in jobs.cluster.audit_events(f"system:serviceaccount:embertide:{operator}")
        if event["verb"] == "patch"
        and event.get("objectRef", {}).get("namespace") == jobs.namespace
    ]
    of_statefulsets = sum(1 for ref in patches if ref["resource"] == "statefulsets")
    # Four attempts, three of which were scaled down with a StatefulSet, and the edits.
    assert of_statefulsets <= 4 + 3 + 2, "what the API server wrote in its own form is no edit"


def test_a_job_made_again_waits_for_the_pods_of_the_one_before(tiny: Inputs, jobs: Jobs) -> None:
    job = tiny.job("again", f"{jobs.root}/out")
    jobs.apply(job)
    before = jobs.await_("again", lambda s: (s.get("workers") or {}).get("pods"))
    finalizers = f'{{"metadata": {{"finalizers": ["{_HELD}"]}}}}'
    jobs.kubectl("patch", "pod", "again-0", "-p", finalizers)
    jobs.kubectl("delete", "ej", "again")
    jobs.apply(job)
    status = jobs.await_(
        "again", lambda s: find_condition(s, "Progressing").get("reason") == "PredecessorLeft"
    )
    assert "Pod/again-0" in find_condition(status, "Progressing")["message"]
    assert find_condition(status, "Accepted")["status"] == "True"
    assert status["attempt"] == 0
    jobs.cluster.wait_for(
        lambda: [p["metadata"].get("deletionTimestamp") for p in jobs.pods()] != [None], 60, "going"
    )
    jobs.kubectl("patch", "pod", "again-0", "-p", '{"metadata": {"finalizers": null}}')
    status = jobs.complete("again")
    assert (status["attempt"], status["failures"]) == (1, 0)
    assert status["workers"]["pods"] != before["workers"]["pods"]


def test_a_pod_that_uses_more_than_it_may_is_no_disruption(tiny: Inputs, jobs: Jobs) -> None:
    # The kubelet looks every ten seconds, and a small job is done before.
    hoard = "import time; open('/scratch/hoard', 'w').write('much'); time.sleep(60)"
    first = {
        "name": "hoarder",
        "image": jobs.cluster.worker_image,
        "command": ["python", "-c", hoard],
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": "1"}}
    greedy = workers(podTemplate={"spec": {"volumes": [scratch], "initContainers": [first]}})
    jobs.apply(tiny.job("greedy", f"{jobs.root}/out", workers=greedy, backoffLimit=0))
    status = jobs.fail("greedy")
    assert (status["lastFailure"]["reason"], status["failures"]) == ("Evicted", 1)
    assert 'EmptyDir volume "scratch" exceeds the limit' in status["lastFailure"]["message"]


@pytest.fixture
def no_controllers(jobs: Jobs) -> Iterator[None]:
    """Nobody removes what is in a namespace that is being deleted."""
    jobs.cluster.kill_controllers()
    try:
        yield
    finally:
        jobs.cluster.start_controllers()


def test_a_namespace_that_is_being_deleted_is_left_alone(
    tiny: Inputs, jobs: Jobs, no_controllers: None, operator: str
) -> None:
    def requests() -> list[dict[str, Any]]:
        """Of the operator for the job; its own heartbeats are none."""
        return [
            event
            for event in jobs.cluster.audit_events(f"system:serviceaccount:embertide:{operator}")
            if event.get("objectRef", {}).get("namespace") == jobs.namespace
            and event["verb"] not in ("get", "list")
            and event["objectRef"].get("name") != ownership.CONFIG_MAP
        ]

    jobs.apply(tiny.job("late", f"{jobs.root}/out", suspend=True))
    jobs.await_("late", lambda s: s.get("phase") == "Suspended")
    jobs.kubectl("delete", "namespace", jobs.namespace, "--wait=false")
    jobs.patch("late", {"suspend": False})
    status = jobs.await_(
        "late", lambda s: find_condition(s, "Progressing").get("reason") == "NamespaceTerminating"
    )
    asked = len(requests())
    jobs.patch("late", {"backoffLimit": 5})  # brings another pass
    jobs.await_("late", lambda s: s["observedGeneration"] == status["observedGeneration"] + 1)
    assert jobs.status("late")["attempt"] == 1
    assert len(requests()) <= asked + 1, "one status, and nothing else"
    assert "ChildRefused" not in jobs.reasons("late")
