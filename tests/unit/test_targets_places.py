"""Where jobs for some nodes alone publish, as the operator and schedules see it."""

from __future__ import annotations

from typing import Any

import pytest

from embertide.spec.version_names import is_of_targets, published_uri_of, targets_uri
from embertide.submit.policy import SubmittedJob
from embertide_operator.job.observe import output_of, waits_for_inputs
from embertide_operator.metrics.job_series import essentials
from tests.support.operator_world import raw_job

SOME = {"targets": {"ids": ["a"]}}


def job(inference: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    made = raw_job(**spec)
    made["spec"]["output"]["uri"] = "s3://shop/out/"
    if inference is not None:
        made["spec"]["inference"] = inference
    made["metadata"] |= {
        "namespace": "shop",
        "uid": "1",
        "creationTimestamp": "2026-11-27T00:00:00Z",
    }
    return made


@pytest.mark.parametrize(
    ("inference", "expected"),
    [
        (None, "s3://shop/out"),
        ({}, "s3://shop/out"),
        ({"targets": None}, "s3://shop/out"),
        (SOME, "s3://shop/out/_targets"),
    ],
)
def test_targets_have_an_output_apart(inference: dict[str, Any] | None, expected: str) -> None:
    """So that jobs of all nodes and of some neither wait for each other nor are each other's
    freshness."""
    given = job(inference)
    assert output_of(given) == expected
    # Metrics keep a fraction of a job, of which the same follows.
    assert output_of(essentials(given)) == expected
    assert SubmittedJob.of(given).output == expected
    assert published_uri_of({}) == ""
    assert is_of_targets(expected) is (expected == targets_uri("s3://shop/out"))


def test_a_job_waits_for_its_table_of_targets() -> None:
    table = {"uri": "s3://shop/wanted", "format": "csv"}
    ready = table | {"ready": {"object": "_SUCCESS"}}
    assert not waits_for_inputs(job({"targets": {"table": table}}))
    assert waits_for_inputs(job({"targets": {"table": ready}}))
    waiting = job()
    assert not waits_for_inputs(waiting)
    pairs = {"uri": "s3://shop/pairs", "format": "csv", "ready": {"object": "_SUCCESS"}}
    waiting["spec"]["input"]["pairs"] = pairs
    assert waits_for_inputs(waiting)
