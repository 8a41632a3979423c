"""Least numbers of edges and nodes, and how far they may shrink, on real files and versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.sizes import check_sizes, last_rows
from embertide.errors import InputTooSmall
from embertide.io.storage.opening import open_storage
from embertide.io.versions.pointer import advance
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.small_job import NODES, SmallJob

STORAGE = open_storage(None)
VERSION = "20261121T041922Z-3fa9c1"
RELATION = "node-edge-node"


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path)


def job_of(small: SmallJob, **changes: Any) -> EmbeddingJob:
    small.write_manifest(**changes)
    return load_manifest(Path(small.manifest))


def check(job: EmbeddingJob) -> list[str]:
    """Warnings; raises where there is too little."""
    warnings: list[str] = []
    check_sizes(STORAGE, job, list_inputs(STORAGE, job), warnings.append)
    return warnings


def refusal(job: EmbeddingJob) -> str:
    with pytest.raises(InputTooSmall) as caught:
        check(job)
    assert caught.value.exit_code == 3
    assert caught.value.permanent
    assert "Nothing was computed, and the current version stays" in str(caught.value)
    return str(caught.value)


def publish_earlier(small: SmallJob, **manifest: Any) -> None:
    """A current version for which so much was read."""
    folder = small.output / "versions" / VERSION
    folder.mkdir(parents=True)
    told = {"rows": NODES, "dim": 4, "created": "2026-11-21T04:19:22Z", "parts": []} | manifest
    (folder / "_manifest.json").write_text(json.dumps(told))
    assert not advance(STORAGE, f"file://{small.output}", VERSION, "ab12")


def relation(small: SmallJob) -> str:
    return str(job_of(small).spec.input.edges[0].relation)


def test_least_edges(small: SmallJob) -> None:
    assert check(job_of(small, input__edges__0__minEdges=NODES)) == []
    said = refusal(job_of(small, input__edges__0__minEdges=20480))
    assert f"/edges/ has {NODES} edges, spec.input.edges[0].minEdges is 20,480." in said


def test_least_nodes(small: SmallJob) -> None:
    assert check(job_of(small, input__nodes__0__minNodes=NODES)) == []
    said = refusal(job_of(small, input__nodes__0__minNodes=1000))
    assert f"node type 'node' has {NODES} nodes" in said
    assert "spec.input.nodes[0].minNodes is 1,000." in said


def test_the_first_version_is_compared_with_none(small: SmallJob) -> None:
    job = job_of(small, input__maxShrink="0%")
    assert last_rows(STORAGE, job) is None
    assert check(job) == []


@pytest.mark.parametrize(("before", "limit"), [(NODES, "0%"), (NODES + 1, "10%"), (1, "0%")])
def test_few_fewer_edges(small: SmallJob, before: int, limit: str) -> None:
    publish_earlier(small, read={"edges": {relation(small): before}, "nodes": {"node": NODES}})
    assert check(job_of(small, input__maxShrink=limit)) == []


def test_half_of_the_edges(small: SmallJob) -> None:
    name = relation(small)
    publish_earlier(small, read={"edges": {name: 2 * NODES}, "nodes": {"node": NODES}})
    said = refusal(job_of(small, input__maxShrink="10%"))
    assert f"the input has {NODES} edges of type {name!r}, 50.0% fewer than the 24" in said
    assert f"of the last version, {VERSION}; spec.input.maxShrink is 10%." in said


def test_half_of_the_nodes(small: SmallJob) -> None:
    edges = {relation(small): NODES}
    publish_earlier(small, read={"edges": edges, "nodes": {"node": 2 * NODES}})
    said = refusal(job_of(small, input__maxShrink="49.9%"))
    assert f"the input has {NODES} nodes of type 'node', 50.0% fewer" in said
    assert check(job_of(small, input__maxShrink="50%")) == []


def test_a_version_of_an_earlier_release(small: SmallJob) -> None:
    """It says how many nodes there were, and that it does not know the edges is told."""
    publish_earlier(small)
    (warning,) = check(job_of(small, input__maxShrink="10%"))
    assert f"version {VERSION} does not say how many rows were read" in warning
    (small.output / "versions" / VERSION / "_manifest.json").write_text(
        json.dumps({"rows": 2 * NODES, "dim": 4, "created": "2026-11-21T04:19:22Z", "parts": []})
    )
    with pytest.raises(InputTooSmall, match=f"has {NODES} nodes of type 'node', 50.0% fewer"):
        check(job_of(small, input__maxShrink="10%"))
