"""Inputs in S3 that are waited for: markers, times of objects, and what a look costs."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from embertide.engine.planning.readiness import describe, missing_inputs
from embertide.errors import AccessDenied
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.workers import StorageSettings
from tests.support.operator_world import raw_job
from tests.support.s3.server import S3Server

pytestmark = pytest.mark.s3


def job(root: str, **ready: Any) -> EmbeddingJob:
    raw: dict[str, Any] = copy.deepcopy(raw_job())
    raw["spec"]["input"]["edges"][0] |= {"uri": f"{root}/edges/", "ready": ready}
    kept = {key: raw[key] for key in ("apiVersion", "kind", "spec")}
    return EmbeddingJob.model_validate(kept | {"metadata": {"name": "products"}})


def why(storage: Storage, root: str, **ready: Any) -> str:
    return describe(missing_inputs(storage, job(root, **ready)))


def test_a_marker(storage: Storage, root: str) -> None:
    storage.write(f"{root}/edges/a.parquet", b"x")
    marker = f"{root}/edges/_SUCCESS"
    assert why(storage, root, object="_SUCCESS") == f"edges[0]: {marker} is not there"
    storage.write(marker, b"")  # as engines write it: empty
    assert why(storage, root, object="_SUCCESS") == ""
    assert why(storage, root, object=marker) == ""


def test_nothing_there_and_no_bucket(storage: Storage, root: str) -> None:
    assert f"edges[0]: {root}/edges/: no such object" in why(storage, root)
    assert "no bucket 'nowhere'" in why(storage, "s3://nowhere", object="_SUCCESS")


def test_settled_by_the_stores_times(storage: Storage, root: str) -> None:
    before = time.time()
    info = storage.write(f"{root}/edges/a.parquet", b"x" * 10)
    assert info.modified == 0.0
    (listed,) = storage.list(f"{root}/edges/")
    stated = storage.stat(f"{root}/edges/a.parquet")
    assert stated is not None
    # S3 has whole seconds.
    assert stated.modified == listed.modified
    assert before - 2 <= listed.modified <= time.time() + 2
    assert f"{root}/edges/a.parquet changed " in why(storage, root, settled="10m")
    time.sleep(2.1)
    assert why(storage, root, settled="1s") == ""


def test_what_a_look_costs(s3: S3Server, root: str) -> None:
    fresh = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    for part in range(20):
        fresh.write(f"{root}/edges/part-{part}.parquet", b"x")
    fresh.write(f"{root}/edges/_SUCCESS", b"mark")
    look = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    assert why(look, root, object="_SUCCESS", minObjects=20, minBytes=20, settled=None) == ""
    assert look.stats.requests == 2, look.stats.operations


def test_a_store_that_refuses_the_key(
    storage: Storage, root: str, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    """Waiting would not mend it."""
    del storage
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    wrong = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
    with pytest.raises(AccessDenied):
        missing_inputs(wrong, job(root, object="_SUCCESS"))
