"""What workers are told of their job and attempt, and which changes of it start them anew."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

import embertide
from embertide.spec.manifest import load_manifest
from embertide_operator.pods.children import children, spec_hash
from tests.support.job_children import ATTEMPT, environment, job, workers
from tests.support.operator_world import SETTINGS


@pytest.mark.parametrize(("deadline", "patience"), [(60, 1800), (1800, 1800), (7200, 7200)])
def test_workers_wait_for_each_other_as_long_as_the_operator(deadline: int, patience: int) -> None:
    told = environment(job(preRunningDeadlineSeconds=deadline))
    assert told["EMBERTIDE_JOIN_SECONDS"] == str(patience)


def test_a_worker_is_told_its_attempt_and_its_rendezvous() -> None:
    told = environment(job(**workers()))
    assert told["EMBERTIDE_GRID"] == "2x2"
    assert told["EMBERTIDE_ATTEMPT"] == "3"
    assert told["EMBERTIDE_VERSION"] == "20261121T120000Z-abcdef"
    assert told["EMBERTIDE_EARLIER_VERSIONS"] == "20261121T110000Z-abcdef"
    assert told["EMBERTIDE_RENDEZVOUS"] == "products-0.products:29500"
    assert told["EMBERTIDE_THREADS"] == "2"


def test_only_what_workers_would_notice_changes_the_hash() -> None:
    base = spec_hash(job())
    assert spec_hash(job(backoffLimit=9, suspend=True)) == base
    assert spec_hash(job(inference={"fanout": [5, 5]})) != base
    assert spec_hash(job(**workers(image="other"))) != base


def test_a_default_is_not_part_of_the_hash() -> None:
    """Otherwise an operator of a release with one more field would restart all workers."""
    said = {
        "input": {
            "edges": [{"uri": "s3://shop/edges/", "format": "parquet"}],
            "nodes": [
                {"ids": "int64", "features": {"uri": "s3://shop/features/", "vectorColumn": "x"}}
            ],
        },
        "model": {"uri": "s3://shop/model/"},
        "workers": {
            "grid": {"graph": 2},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        },
    }
    text = json.dumps(said, sort_keys=True)
    assert spec_hash(job()) == hashlib.sha256(text.encode()).hexdigest()[:16]


def told(**spec: Any) -> dict[str, Any]:
    """The job's file for its workers."""
    found = children(job(**spec), ATTEMPT, SETTINGS)[0]["data"]["job.json"]
    manifest: dict[str, Any] = json.loads(found)
    return manifest


def test_workers_are_told_what_the_user_said_and_no_default() -> None:
    """One of another release refuses fields that it does not know."""
    said = told(inference={"fanout": [5, 5], "seed": 0}, output={"uri": "s3://shop/out"})
    assert said["spec"] == {
        "input": {
            "edges": [{"uri": "s3://shop/edges/", "format": "parquet"}],
            "nodes": [
                {"ids": "int64", "features": {"uri": "s3://shop/features/", "vectorColumn": "x"}}
            ],
        },
        "model": {"uri": "s3://shop/model/"},
        "inference": {"fanout": [5, 5]},
        "output": {"uri": "s3://shop/out"},
        "workers": {
            "grid": {"graph": 2},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        },
    }
    assert set(said) == {"apiVersion", "kind", "metadata", "spec"}
    assert said["metadata"] == {"name": "products", "namespace": "shop"}


def test_workers_are_not_told_what_only_the_operator_reads() -> None:
    plain = told()
    for_the_operator = {
        "suspend": True,
        "backoffLimit": 7,
        "ttlSecondsAfterFinished": 60,
        "freshness": {"maxAge": "36h"},
    }
    assert told(**for_the_operator) == plain
    of_pods = {"image": "w:1", "serviceAccountName": "s", "podTemplate": {"spec": {}}}
    grid = {"grid": {"graph": 2, "feature": 2}}
    assert told(workers={**grid, **of_pods}) == told(workers=grid)


@pytest.mark.parametrize("fields", [{}, {"inference": {"fanout": [5, 5], "depth": 4}}])
def test_workers_understand_the_job_as_the_operator_does(fields: dict[str, Any]) -> None:
    text = children(job(**fields), ATTEMPT, SETTINGS)[0]["data"]["job.json"]
    assert load_manifest(text) == job(**fields)


def test_a_worker_is_told_the_operators_release() -> None:
    assert environment(job())["EMBERTIDE_OPERATOR_VERSION"] == embertide.__version__
