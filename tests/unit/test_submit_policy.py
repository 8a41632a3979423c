"""What a firing does about other jobs of its schedule, and what the API's refusals become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from embertide.cli.submit import PolicyName
from embertide.errors import ClusterError, JobFailed, ManifestError
from embertide.submit.cluster import NameTaken, NotThere, refusal
from embertide.submit.policy import Decision, Policy, SubmittedJob, decide
from embertide.submit.wait import describe, ended

NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


def other(hour: int, phase: str) -> SubmittedJob:
    time = NOW.replace(hour=hour)
    return SubmittedJob(f"products-{hour:02}", f"uid-{hour}", phase, "products", time)


RUNNING, PENDING = other(0, "Running"), other(0, "Pending")
DONE, FAILED = other(1, "Succeeded"), other(2, "Failed")
LATER = other(4, "Succeeded")


@pytest.mark.parametrize("policy", Policy)
def test_finished_jobs_are_in_nobodys_way(policy: Policy) -> None:
    assert decide(policy, NOW, [DONE, FAILED]) == Decision()
    assert decide(policy, NOW, []) == Decision()


def test_allow_looks_at_nothing() -> None:
    assert decide(Policy.ALLOW, NOW, [RUNNING, LATER]) == Decision()


def test_forbid_skips_and_names_the_one_that_runs() -> None:
    skip = decide(Policy.FORBID, NOW, [DONE, RUNNING]).skip
    assert skip == "products-00 is not finished (Running; policy Forbid)"


def test_replace_deletes_every_unfinished_one() -> None:
    assert decide(Policy.REPLACE, NOW, [RUNNING, PENDING, DONE]).replace == (RUNNING, PENDING)


@pytest.mark.parametrize("policy", [Policy.FORBID, Policy.REPLACE])
def test_a_late_firing_never_undoes_a_later_one(policy: Policy) -> None:
    decision = decide(policy, NOW, [RUNNING, LATER])
    assert decision == Decision(skip="a later firing was first: products-04 (Succeeded)")


def test_a_suspended_job_is_not_finished() -> None:
    assert "Suspended" in decide(Policy.FORBID, NOW, [other(2, "Suspended")]).skip


def test_jobs_as_the_api_has_them() -> None:
    job: dict[str, Any] = {"metadata": {"name": "products-1", "uid": "u"}}
    assert SubmittedJob.of(job) == SubmittedJob("products-1", "u", "Pending", "", None)
    job["metadata"] |= {
        "labels": {"embertide.dev/schedule": "products"},
        "annotations": {"embertide.dev/scheduled-time": "2026-11-22T03:00:00Z"},
    }
    job["status"] = {"phase": "Failed"}
    assert SubmittedJob.of(job) == SubmittedJob("products-1", "u", "Failed", "products", NOW)


def test_the_command_line_has_the_same_policies() -> None:
    assert [name.value for name in PolicyName] == [policy.value for policy in Policy]


@pytest.mark.parametrize(
    ("status", "answer", "kind", "message"),
    [
        (409, {"message": "exists"}, NameTaken, "cannot x: exists"),
        (404, {"message": "no", "details": {"name": "p"}}, NotThere, "cannot x: no"),
        (
            404,
            {
                "message": 'embeddingjobs.embertide.dev "namespaces-1" not found',
                "details": {"name": "namespaces-1", "kind": "embeddingjobs"},
            },
            NotThere,
            '"namespaces-1" not found',
        ),
        (
            404,
            {
                "message": 'namespaces "a" not found',
                "details": {"name": "a", "kind": "namespaces"},
            },
            ClusterError,
            'namespaces "a" not found',
        ),
        (404, {}, ClusterError, "cannot x: HTTP 404; this cluster has no EmbeddingJobs: install"),
        (403, {"message": "no right"}, ClusterError, "no right; docs/schedules.md lists"),
        (401, {}, ClusterError, "the credentials are not valid"),
        (422, {"message": "spec.x: bad"}, ManifestError, "spec.x: bad"),
        (503, {}, ClusterError, "cannot x: HTTP 503"),
    ],
)
def test_refusals(status: int, answer: dict[str, Any], kind: type, message: str) -> None:
    error = refusal(status, answer, "cannot x")
    assert type(error) is kind
    assert message in str(error)


def condition(kind: str, value: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": value, "reason": reason, "message": message}


def test_waiting_ends_with_the_job() -> None:
    assert not ended("p", {})
    assert not ended("p", {"phase": "Restarting"})
    assert ended("p", {"phase": "Succeeded"})
    failed = condition("Failed", "True", "Input", "bad row")
    with pytest.raises(JobFailed, match="p failed: Input: bad row"):
        ended("p", {"phase": "Failed", "conditions": [failed]})
    last = {"message": "row 7 of x"}
    with pytest.raises(JobFailed, match="p failed: Input: row 7 of x"):
        ended("p", {"phase": "Failed", "conditions": [failed], "lastFailure": last})
    refused = condition("Accepted", "False", "InvalidSpec", "grid is odd")
    with pytest.raises(JobFailed, match="p was not accepted: InvalidSpec: grid is odd"):
        ended("p", {"phase": "Pending", "conditions": [refused]})


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ({}, "Pending, no operator has seen it yet"),
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Running", "attempt": 1, "progress": {"stage": "infer"}}, "Running, infer"),
        ({"phase": "Restarting", "attempt": 2}, "Restarting, attempt 2"),
        ({"phase": "Succeeded", "output": {"version": "v"}}, "Succeeded, version v"),
    ],
)
def test_lines_for_people(status: dict[str, Any], line: str) -> None:
    assert describe(status) == line
