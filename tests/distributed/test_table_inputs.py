"""Delta and Iceberg tables with every command; as plain folders they are refused. Bytes for ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.listings import check_listings
from embertide.engine.planning.readiness import describe, missing_inputs
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands, Published
from tests.support.pods import local_pods, plan_pod
from tests.support.small_job import NODES, WIDTH, SmallJob
from tests.support.table_inputs import embeddings, iceberg_catalog

pytestmark = pytest.mark.distributed
INPUT, MISSING = 3, 5


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


def test_a_table_of_delta(commands: Commands, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    job = SmallJob.make(tmp_path / "job")
    assert commands.run("run", job.manifest, "--grid", "1x1", "-q").code == 0
    published = Published(job.output)
    edges, table = pq.read_table(job.edges), job.edges.parent
    job.edges.unlink()
    for half in (edges.slice(0, 5), edges.slice(5)):
        write_deltalake(table, half, mode="append")
    DeltaTable(table).optimize.compact()
    against = str(tmp_path / "reference.parquet")
    for words in (
        ("plan", job.manifest),
        ("run", job.manifest, "--grid", "1x1"),
        ("check", job.manifest, "--against", against),
    ):
        done = commands.run(*words)
        assert done.code == INPUT, done.err
        assert f"belongs to a Delta table: file://{table}/_delta_log/ is its" in done.message
    published.check_untouched()


def test_the_same_table_as_what_it_is(commands: Commands, tmp_path: Path) -> None:
    """Edges, features and the table of nodes, each as a version of a table."""
    from deltalake import DeltaTable, write_deltalake

    job = SmallJob.make(tmp_path / "job")
    assert commands.run("run", job.manifest, "--grid", "1x1", "-q").code == 0
    expected = embeddings(job.output)
    rows = pq.read_table(job.edges)
    for half in (rows.slice(0, 5), rows.slice(5), rows):
        write_deltalake(tmp_path / "edges", half, mode="append")
    DeltaTable(tmp_path / "edges").restore(1)
    features = pq.read_table(job.features)
    with iceberg_catalog(tmp_path) as catalog:
        table = catalog.create_table("n.x", features.schema, location=f"file://{tmp_path}/x")
        table.append(features)
        uri, snapshot = table.metadata_location, table.current_snapshot().snapshot_id
    job.write_manifest(
        input__edges=[{"uri": str(tmp_path / "edges"), "format": "delta"}],
        input__nodes=[
            {
                "ids": "int64",
                "features": {"uri": uri, "format": "iceberg", "vectorColumn": "x"},
                "table": {"uri": uri, "format": "iceberg", "asOf": {"version": snapshot}},
            }
        ],
        output__uri=str(tmp_path / "out"),
    )
    assert commands.run("plan", job.manifest).code == 0
    done = commands.run("run", job.manifest, "--grid", "2x1", "-q")
    assert done.code == 0, done.err
    assert np.array_equal(embeddings(tmp_path / "out"), expected)
    (path,) = (tmp_path / "out").rglob("_manifest.json")
    manifest = json.loads(path.read_text())
    assert [(t["field"], t["version"]) for t in manifest["tables"]] == [
        ("edges[0]", 3), ("nodes[0].table", snapshot), ("nodes[0].features", snapshot)
    ]  # fmt: skip
    assert manifest["read"] == {"edges": {"node:edge:node": NODES}, "nodes": {"node": NODES}}
    (page,) = (tmp_path / "out").rglob("_report.html")
    assert f"<code>{snapshot}</code>" in page.read_text()
    for asked, message in (
        ({"version": 9}, "has no version 9 (asOf.version); its log has versions 0 to 3"),
        ({"timestamp": "2020-01-01T00:00:00Z"}, "has no version of 2020-01-01T00:00:00Z"),
    ):
        job.write_manifest(
            input__edges=[{"uri": str(tmp_path / "edges"), "format": "delta", "asOf": asked}]
        )
        for words in (("plan",), ("run", "--grid", "1x1")):
            done = commands.run(words[0], job.manifest, *words[1:])
            assert done.code == MISSING, done.err
            assert message in done.message


def test_a_table_may_get_versions_while_one_is_read(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    job, table = SmallJob.make(tmp_path / "job"), tmp_path / "edges"
    write_deltalake(table, pq.read_table(job.edges))
    job.write_manifest(input__edges=[{"uri": str(table), "format": "delta"}])
    storage, manifest = open_storage(None), load_manifest(Path(job.manifest))
    inputs = list_inputs(storage, manifest)
    write_deltalake(table, pq.read_table(job.edges), mode="append")
    assert set(inputs.listings) == {f"file://{job.features.parent}/"}
    assert check_listings(storage, inputs.listings, {}, strict=True) == []


def test_a_job_that_waits_for_a_new_version(commands: Commands, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    job = SmallJob.make(tmp_path / "job")
    rows, table = pq.read_table(job.edges), tmp_path / "edges"
    ready = {"newVersion": True, "within": "1s"}
    edges = {"uri": str(table), "format": "delta", "ready": ready}
    job.write_manifest(input__edges=[edges])
    waiting = load_manifest(Path(job.manifest))
    assert "does not exist" in describe(missing_inputs(open_storage(None), waiting))
    write_deltalake(table, rows)
    # Nothing was published yet.
    assert commands.run("run", job.manifest, "--grid", "1x1", "-q").code == 0
    published = Published(job.output)
    done = commands.run("run", job.manifest, "--grid", "1x1")
    assert done.code == INPUT, done.err
    assert f"edges[0]: Delta table file://{table} still has version 0 of 20" in done.message
    published.check_untouched()
    write_deltalake(table, rows, mode="overwrite")
    assert missing_inputs(open_storage(None), waiting) == []
    assert commands.run("run", job.manifest, "--grid", "1x1", "-q").code == 0
    assert not published.is_newest()


def test_a_job_that_waits_for_a_version(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    job = SmallJob.make(tmp_path / "job")
    rows, table = pq.read_table(job.edges), tmp_path / "edges"
    write_deltalake(table, rows.slice(0, 5))
    edges = {"uri": str(table), "format": "delta", "asOf": {"version": 1}}
    job.write_manifest(input__edges=[edges | {"ready": {"minRows": NODES, "minObjects": 2}}])
    waiting = load_manifest(Path(job.manifest))
    assert "no version 1 (asOf.version)" in describe(missing_inputs(open_storage(None), waiting))
    write_deltalake(table, rows.slice(5), mode="append")
    assert missing_inputs(open_storage(None), waiting) == []


def test_ids_in_latin_1(commands: Commands, tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path / "job")
    names = [f"café {i}" for i in range(NODES)]
    job.write_features(names, np.ones((NODES, WIDTH)))
    held = pa.array([name.encode("latin-1") for name in names], pa.binary()).view(pa.string())
    job.write_edges(held, held)
    job.write_manifest(input__nodes__0__ids="string")
    done = commands.run("run", job.manifest, "--grid", "2x1")
    assert done.code == INPUT, done.err
    assert f"{job.edges} row 0 (from 0): column 'src' (columns.source) is" in done.message
    assert r"b'caf\xe9 0', whose byte 3 (from 0) is not UTF-8" in done.message
    assert not job.output.exists()


def test_workers_read_the_version_that_was_planned(commands: Commands, tmp_path: Path) -> None:
    """By the planner, which looks a table up; every attempt reads that version."""
    from deltalake import write_deltalake

    small = SmallJob.make(tmp_path / "job")
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
