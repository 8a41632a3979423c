"""The operator's rights, held against what it was seen to ask of the API server."""

from __future__ import annotations

import itertools

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import NAMESPACE, RELEASE
from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers
from tests.support.cluster.schedules import show_idle_schedule

pytestmark = pytest.mark.cluster

MANY = 40
"""Pods: so many are deleted by one request."""
Right = tuple[str, str, str]
"""API group, resource (with its subresource) and verb."""


def test_it_has_exactly_the_rights_it_uses(tiny: Inputs, jobs: Jobs, operator: str) -> None:
    """One job is planned, runs and is removed, another cannot have its pods, and one of many
    pods is deleted: that needs all."""
    planned = tiny.job("planned", f"{jobs.root}/a", workers={"grid": "auto"})
    jobs.apply(planned | {"spec": planned["spec"] | {"ttlSecondsAfterFinished": 10}})
    jobs.cluster.wait_for(lambda: not jobs.statuses(), 240, "it is gone")
    nowhere = {"spec": {"nodeSelector": {"no-such-node": "true"}}}
    jobs.apply(tiny.job("many", f"{jobs.root}/m", workers=workers(MANY, podTemplate=nowhere)))
    jobs.cluster.wait_for(lambda: len(jobs.pods()) == MANY, 60, "its pods")
    jobs.kubectl("delete", "ej", "many", "--wait=false")
    jobs.await_no_pods()
    jobs.kubectl("create", "quota", "none", "--hard=pods=0")
    jobs.apply(tiny.job("refused", f"{jobs.root}/b", workers=workers()))
    jobs.await_(
        "refused", lambda s: find_condition(s, "WorkersReady").get("reason") == "PodsRefused"
    )
    show_idle_schedule(jobs)
    granted = _granted(jobs.cluster, operator)
    used, refused = _asked_for(jobs.cluster, operator)
    assert refused - granted == set(), "rights that are missing"
    assert granted - used == set(), "rights that nothing needs"


def _granted(cluster: KubernetesCluster, role: str) -> set[Right]:
    """By the ClusterRole, and by the Roles in the operator's own namespace."""
    roles = [cluster.get("clusterrole", f"{NAMESPACE}:{role}")]
    roles += [cluster.get("-n", NAMESPACE, "role", name) for name in (role, f"{RELEASE}-outputs")]
    return {
        (group, resource, verb)
        for rule in itertools.chain.from_iterable(found["rules"] for found in roles)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _asked_for(cluster: KubernetesCluster, operator: str) -> tuple[set[Right], set[Right]]:
    """What the API server let the operator do, and what not."""
    used: set[Right] = set()
    refused: set[Right] = set()
    for event in cluster.audit_events(f"system:serviceaccount:embertide:{operator}"):
        target = event.get("objectRef")
        if target is None or "resource" not in target:
            continue
        resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
        group, code = target.get("apiGroup", ""), event.get("responseStatus", {}).get("code", 0)
        (refused if code == 403 else used).add((group, resource, event["verb"]))
        # The first apply of an object needs create as well; the log shows it as a patch.
        if event["verb"] == "patch" and code == 201:
            used.add((group, resource, "create"))
    return used, refused
