"""Inputs that come late, on the cluster: the job waits without pods, and reads all or nothing."""

from __future__ import annotations

import copy
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition

pytestmark = pytest.mark.cluster


@pytest.fixture
def late(tiny: Inputs, jobs: Jobs) -> Manifest:
    """A job over a folder of edges of its own, whose nodes are a number: no edge is missed."""
    found = tiny.job("late", f"{jobs.root}/out")
    found["spec"]["input"]["edges"][0]["uri"] = f"{jobs.root}/edges/"
    return found


def edges_of(tiny: Inputs) -> pa.Table:
    """All edges of the graph."""
    uri = tiny.manifest["spec"]["input"]["edges"][0]["uri"]
    objects = sorted(info.uri for info in tiny.storage.list(uri))
    return pa.concat_tables(pq.read_table(io.BytesIO(tiny.storage.read(o))) for o in objects)


def write(tiny: Inputs, uri: str, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    tiny.storage.write(uri, buffer.getvalue())


def waiting(job: Manifest, **ready: Any) -> Manifest:
    job = copy.deepcopy(job)
    job["spec"]["input"]["edges"][0]["ready"] = ready
    return job


def missing(status: Manifest) -> str:
    return str((status.get("inputs") or {}).get("missing", ""))


def test_half_of_the_edges_and_no_marker(tiny: Inputs, jobs: Jobs, late: Manifest) -> None:
    """The version is made of all edges, however much was there when the schedule fired."""
    table = edges_of(tiny)
    half = table.num_rows // 2
    write(tiny, f"{jobs.root}/edges/part-0.parquet", table.slice(0, half))
    jobs.apply(waiting(late, object="_SUCCESS", within="10m"))
    status = jobs.await_("late", missing)
    assert status["phase"] == "Waiting"
    assert f"edges[0]: {jobs.root}/edges/_SUCCESS is not there (since " in missing(status)
    condition = find_condition(status, "InputsReady")
    assert (condition["status"], condition["reason"]) == ("False", "InputsNotReady")
    jobs.await_no_pods(20)
    shown = jobs.kubectl("get", "ej", "late")
    assert "MISSING" in shown
    assert "Waiting" in shown
    assert "InputsNotReady" in shown
    assert "_SUCCESS is not there" in shown
    assert tiny.versions(f"{jobs.root}/out") == []

    write(tiny, f"{jobs.root}/edges/part-1.parquet", table.slice(half))
    tiny.storage.write(f"{jobs.root}/edges/_SUCCESS", b"")
    status = jobs.complete("late")
    assert status["attempt"] == 1
    assert status["inputs"]["looks"] >= 2
    assert missing(status) == ""
    tiny.check(f"{jobs.root}/out")
    reasons = jobs.reasons("late")
    assert [r for r in reasons if r.startswith("Inputs")] == ["InputsNotReady", "InputsReady"]
