"""The API server holds the same rules as the command line, with messages to act on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from embertide.spec import naming
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Jobs, find_condition
from tests.support.job_cases import ACCEPTED, BASE, CASES, FINISHED, Case

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def namespace(cluster: KubernetesCluster, operator: str) -> str:
    """One for all cases, which leave nothing there."""
    return cluster.namespace("cases")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rule_is_refused_with_its_message(
    case: Case, cluster: KubernetesCluster, namespace: str
) -> None:
    path = f"/apis/{naming.GROUP}/{naming.API_VERSION_NAME}/namespaces/{namespace}/{naming.PLURAL}"
    # As plain JSON, which is what kubectl sends.
    told = cluster.try_create(path, json.loads(json.dumps(case.mutate(BASE))))
    assert case.message in told if case.message else told == "", told


def test_what_is_fixed_once_the_job_is_accepted(jobs: Jobs) -> None:
    job = {**BASE, "spec": {**BASE["spec"], "suspend": True}}
    jobs.apply(job)
    jobs.await_("products", lambda s: find_condition(s, "Accepted").get("status") == "True")
    for case in ACCEPTED:
        check(jobs.cluster, jobs.namespace, case, case.mutate(job))


def test_what_is_fixed_once_the_job_has_finished(jobs: Jobs) -> None:
    """Resources and grid too, whose contents the rules cannot look into."""
    job = DONE_BASE
    jobs.apply(job)
    jobs.await_("products", lambda s: find_condition(s, "Accepted").get("status") == "True")
    finish(jobs, "products")
    for case in FINISHED:
        check(jobs.cluster, jobs.namespace, case, case.mutate(job))


def test_a_null_does_not_lock_a_job(jobs: Jobs) -> None:
    """The API server drops it; kept, the job would be unequal to itself in every later rule."""
    nodes = [BASE["spec"]["input"]["nodes"][0] | {"count": None}]
    spec = {"input": BASE["spec"]["input"] | {"nodes": nodes}, "workers": {"count": None}}
    jobs.apply({**BASE, "spec": BASE["spec"] | spec | {"suspend": True, "freshness": None}})
    jobs.await_("products", lambda s: find_condition(s, "Accepted").get("status") == "True")
    jobs.patch("products", {"backoffLimit": 7})
    finish(jobs, "products")
    jobs.patch("products", {"freshness": {"maxAge": "26h"}})
    jobs.await_("products", lambda s: s.get("observedGeneration") == 3)


DONE_BASE = {
    **BASE,
    "spec": {
        **BASE["spec"],
        "suspend": True,
        "workers": {
            "grid": {"graph": 2},
            "resources": {"limits": {"memory": "20Mi"}},
            "podTemplate": {"metadata": {"labels": {"team": "ml"}}},
        },
        "inference": {"fanout": [3]},
    },
}


def finish(jobs: Jobs, name: str) -> None:
    """The job has failed, as the operator would write it."""
    conditions = [
        *jobs.status(name)["conditions"],
        {"type": "Failed", "status": "True", "reason": "Input", "message": "by hand",
         "lastTransitionTime": "2026-11-21T11:00:00Z"},
    ]  # fmt: skip
    status = {"phase": "Failed", "completionTime": "2026-11-21T11:00:00Z", "conditions": conditions}
    change = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    jobs.kubectl("patch", "ej", name, *change)


def check(cluster: KubernetesCluster, namespace: str, case: Case, job: dict[str, Any]) -> None:
    """kubectl applies the job, or the API server refuses it with the case's message."""
    command = ("apply", "--dry-run=server", "-f", "-")
    # As JSON: kubectl's YAML takes y for true, PyYAML does not.
    result = cluster.try_kubectl("-n", namespace, *command, input=json.dumps(job))
    if case.message:
        assert result.returncode != 0, case.name
        assert case.message in result.stderr
    else:
        assert result.returncode == 0, f"{case.name}: {result.stderr}"
