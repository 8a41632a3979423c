"""Tables in pods: the planner looks a table up, and every attempt reads that version."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands
from tests.support.pods import local_pods, plan_pod
from tests.support.small_job import SmallJob
from tests.support.table_inputs import embeddings

pytestmark = pytest.mark.distributed


def test_workers_read_the_version_that_was_planned(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    small = SmallJob.make(tmp_path / "job")
    commands = Commands(tmp_path)
    assert commands.run("run", small.manifest, "--grid", "1x1", "-q").code == 0
    expected = embeddings(small.output)
    rows, table = pq.read_table(small.edges), tmp_path / "edges"
    write_deltalake(table, rows)
    small.write_manifest(
        input__edges=[{"uri": str(table), "format": "delta"}], output__uri=str(tmp_path / "out")
    )
    job = load_manifest(Path(small.manifest))
    code, plan = plan_pod(tmp_path / "plan", job)
    assert (code, plan["tables"]) == (0, {"edges[0]": 0})
    write_deltalake(table, rows.slice(0, 3), mode="append")
    with local_pods(tmp_path / "pods", job) as pods:
        started = pods.attempt("2x1", EMBERTIDE_TABLES=json.dumps(plan["tables"]))
        for pod in started:
            pod.until_state("succeeded")
    assert np.array_equal(embeddings(tmp_path / "out"), expected)
    (path,) = (tmp_path / "out").rglob("_manifest.json")
    assert json.loads(path.read_text())["tables"][0]["version"] == 0


def test_what_is_no_versions_of_tables(tmp_path: Path) -> None:
    small = SmallJob.make(tmp_path / "job")
    with local_pods(tmp_path / "pods", load_manifest(Path(small.manifest))) as pods:
        (pod,) = pods.attempt("1x1", EMBERTIDE_TABLES="7")
        pod.process.wait()
        assert "is no JSON of versions by fields" in pod.termination_log.read_text()
