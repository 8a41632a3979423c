"""Night after night a job computes the rows that have changed, and publishes whole versions."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import embertide
from embertide.engine.pipeline.embed import embed_over_kept
from embertide.facts.telemetry.format import human_bytes
from embertide.io.versions.layers.seals import KeptTensor
from embertide.io.versions.layers.sweeping import seals_of
from embertide.spec.manifest import load_manifest
from tests.support.refreshed_job import NightlyJob
from tests.support.tiers import later

pytestmark = pytest.mark.distributed

SMALL = "550MiB"
"""With all tensors in memory a worker needs more."""


@pytest.fixture
def job(tmp_path: Path) -> NightlyJob:
    return NightlyJob(tmp_path, "--scale", "10")


@pytest.mark.parametrize("grid", ["2x1", *later(["1x2", "2x2"], "2x2")])
def test_several_days_have_the_bits_of_whole_runs(grid: str, job: NightlyJob) -> None:
    first = job.night(grid)
    assert first["refresh"]["mode"] == "full"
    assert job.manifest()["refresh"] == {"mode": "full", "full": first["version"]}
    before = first["version"]
    for day in (1, 2):
        job.change_edges(day)
        report = job.night(grid)
        refresh = report["refresh"]
        assert (refresh["mode"], refresh["base"]) == ("incremental", before)
        assert 0 < refresh["edges"] < refresh["all_edges"]
        assert report["self_check"]["state"] == "checked"
        entry = job.manifest()["refresh"]
        assert (entry["mode"], entry["from"]) == ("incremental", before)
        assert (entry["full"], entry["rows"]) == (first["version"], refresh["rows"])
        (kept,) = job.kept()
        assert kept.with_digests
        assert kept.layers == [1, 2, 3]
        assert job.same_as_whole(grid)
        before = report["version"]


def test_days_with_tensors_on_disk_have_the_bits_of_whole_runs(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "17", "--kind", "uniform", "--layers", "2")
    disk = tmp_path / "scratch"
    disk.mkdir()
    small = "--memory", SMALL, "--scratch", str(disk)
    reports = [job.night("2x1", *small)]
    for seed in (5, 6):
        job.change_edges(seed)
        reports.append(job.night("2x1", *small))
        assert job.same_as_whole("2x1")
    assert [report["refresh"]["mode"] for report in reports] == ["full", *["incremental"] * 2]
    for report in reports:
        assert report["kept"]["kept"] == [1, 2]
        assert report["kept"]["problems"] == []
        assert all(worker["scratch_bytes_written"] > 0 for worker in report["workers"])
        for of in report["memory"]:
            assert of["peak_bytes"] - of["baseline_bytes"] <= 1.1 * of["planned_bytes"]
    assert not list(disk.iterdir())


def test_graphs_of_several_types_have_the_bits_of_whole_runs(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--hetero")
    job.night("2x1")
    job.change_edges(1)
    refresh = job.night("2x1")["refresh"]
    assert refresh["mode"] == "incremental"
    assert refresh["edges"] < refresh["all_edges"]
    assert job.same_as_whole("2x1")


@pytest.mark.parametrize("layer", [0, 2])
def test_kept_rows_that_are_damaged_take_a_full_run(layer: int, job: NightlyJob) -> None:
    job.night("1x1")
    job.change_edges(1)
    job.damage(layer)
    report = job.night("1x1")
    assert report["refresh"]["mode"] == "full"
    assert report["refresh"]["why"].endswith("does not match its checksum")
    assert job.manifest()["refresh"] == {"mode": "full", "full": report["version"]}
    assert job.same_as_whole("1x1")
    job.change_edges(2)
    assert job.night("1x1")["refresh"]["mode"] == "incremental"
    assert job.same_as_whole("1x1")


def test_a_run_that_is_killed_is_gone_on_with(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "16")
    first = job.night("2x1")["version"]
    job.change_edges(1)
    assert job.killed("2x1").code != 0
    report = job.night("2x1")
    assert report["kept"]["resumed"] >= 1
    assert job.same_as_whole("2x1")
    job.change_edges(2)
    report = job.night("2x1")
    assert report["refresh"]["mode"] == "incremental"
    assert job.manifest()["refresh"]["full"] == first
    assert job.same_as_whole("2x1")
    assert len(job.kept()) == 1


def test_layers_of_which_most_rows_have_changed_fit_into_the_plan(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "16", "--kind", "uniform")
    job.night("1x1")
    job.change_edges(1, count=200_000)
    report = job.night("1x1")
    assert report["refresh"]["mode"] == "incremental"
    (memory,) = report["memory"]
    assert memory["stage_bytes"]["infer"] <= report["planned_memory"]["infer"]


def test_runs_say_why_they_compute_all_rows(job: NightlyJob) -> None:
    first = job.night("1x1")["version"]
    job.change_edges(1)
    refresh = job.night("2x1")["refresh"]
    assert refresh["why"] == f"version {first} was computed with grid 1x1, not 2x1"
    job.change_edges(2)
    job.set(keep=True, mode="full")
    assert job.night("2x1")["refresh"]["why"] == "spec.refresh.mode is full, or --force was given"
    job.change_edges(3)
    job.set(keep=True, mode="incremental", fullEvery="1s")
    time.sleep(1)
    assert "longer ago than refresh.fullEvery" in job.night("2x1")["refresh"]["why"]
    job.change_edges(4, count=500)
    job.set(keep=True)
    refresh = job.night("2x1")["refresh"]
    assert refresh["mode"] == "full"
    assert "is likely to take" in refresh["why"]


def test_some_nodes_are_computed_over_the_rows_that_were_kept(job: NightlyJob) -> None:
    job.set(keep=True, mode="auto")
    version = job.night("1x1")["version"]
    done = job.embed(5, 900)
    assert done.code == 0, done.err
    assert f"after the kept layer 2 of {version}" in done.err
    ids, rows = embertide.read(job.path / "embeddings", ids=[5, 900]).to_numpy()
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["id"] for line in lines] == ids.tolist()
    found = np.array([line["embedding"] for line in lines], np.float32)
    assert np.array_equal(found, rows)
    # Of other inputs they are no use.
    job.change_edges(5)
    done = job.embed(5)
    assert done.code == 0, done.err
    assert "are not used: inputs, model or job have changed" in done.err


def test_what_is_kept_goes_when_no_run_goes_on_from_it(job: NightlyJob) -> None:
    job.night("1x1")
    job.change_edges(1)
    job.set(keep=False, mode="incremental")
    report = job.night("1x1")
    assert report["refresh"]["mode"] == "incremental"
    assert "layers" not in job.manifest()
    assert job.kept() == []
    assert not (job.path / "embeddings" / "_layers").exists()
    job.change_edges(2)
    why = job.night("1x1")["refresh"]["why"]
    assert why == f"version {report['version']} has kept no rows"
    assert job.same_as_whole("1x1")


def test_rows_that_may_be_wrong_are_not_taken_for_exact_ones(job: NightlyJob) -> None:
    job.set(keep=True, mode="incremental", tolerance=0.05)
    first = job.night("2x1")["version"]
    assert "tolerance" not in job.manifest()["refresh"]
    job.change_edges(1)
    report = job.night("2x1")
    refresh, entry = report["refresh"], job.manifest()["refresh"]
    assert (entry["mode"], entry["full"], entry["tolerance"]) == ("incremental", first, 0.05)
    assert (entry["measured"], entry["error"]) == (refresh["measured"], refresh["error"])
    assert entry["measured"] > 0
    assert 0 <= entry["error"] <= refresh["max_error"] == 0.5
    assert refresh["edges"] <= refresh["reached_edges"]
    assert refresh["unmoved"] > 0
    # Nothing has changed since, but these rows may be more wrong than the job allows by now.
    job.set(keep=True, mode="incremental", tolerance=0)
    again = job.night("2x1")
    assert not again["confirmed"]
    assert again["refresh"]["mode"] == "full"
    assert job.same_as_whole("2x1")
    job.set(keep=True, mode="incremental", tolerance=0.05)
    job.change_edges(2)
    assert job.night("2x1")["refresh"]["mode"] == "incremental"
    job.set(keep=True, mode="incremental", tolerance=0.01)
    job.change_edges(3)
    why = job.night("2x1")["refresh"]["why"]
    assert why.endswith("computed with refresh.tolerance 0.05, which is more than 0.01")
    assert job.same_as_whole("2x1")


def test_rows_with_larger_errors_than_the_job_allows_are_computed_again(job: NightlyJob) -> None:
    job.set(keep=True, mode="incremental", tolerance=0.05, maxError=0.5)
    first = job.night("1x1")["version"]
    job.change_edges(1)
    version = job.night("1x1")["version"]
    assert job.manifest()["refresh"]["maxError"] == 0.5
    # What is kept may be wrong by as much, and so is what is published, though nothing changes.
    job.set(keep=True, mode="incremental", tolerance=0.05, maxError=0.2)
    again = job.night("1x1")
    why = f"version {version} was computed with refresh.maxError 0.5, which is more than 0.2"
    assert not again["confirmed"]
    assert again["refresh"]["why"] == why
    assert job.same_as_whole("1x1")
    job.change_edges(2)
    assert job.night("1x1")["refresh"]["mode"] == "incremental"
    assert job.manifest()["refresh"]["full"] == again["version"] > first


def test_errors_last_no_longer_than_full_every_where_nothing_changes(job: NightlyJob) -> None:
    tolerated = {"keep": True, "mode": "incremental", "tolerance": 0.05}
    job.set(**tolerated)
    first = job.night("1x1")["version"]
    job.change_edges(1)
    assert job.night("1x1")["refresh"]["mode"] == "incremental"
    assert job.night("1x1")["confirmed"]
    job.set(**tolerated, fullEvery="1s")
    time.sleep(1)
    why = f"the last full run, of version {first}, is longer ago than refresh.fullEvery"
    assert job.planned("1x1")[0] == f"a run would compute all rows: {why}"
    again = job.night("1x1")
    assert not again["confirmed"]
    assert again["refresh"]["why"] == why
    assert job.same_as_whole("1x1")
    # These are exact, however old they are.
    time.sleep(1)
    assert job.night("1x1")["confirmed"]


def test_rows_of_another_grid_are_not_taken_over(job: NightlyJob) -> None:
    job.night("2x1")
    version = job.night("1x1", "--force")["version"]
    # It has kept its digests, and its inputs' layers are there: those of the run before.
    job.change_edges(1)
    refresh = job.night("1x1")["refresh"]
    assert refresh["mode"] == "full"
    assert f"in another way than version {version}" in refresh["why"]
    job.change_edges(2)
    assert job.night("1x1")["refresh"]["mode"] == "incremental"
    assert job.same_as_whole("1x1")


def test_a_manifest_that_was_changed_is_not_gone_on_from(job: NightlyJob) -> None:
    version = job.night("1x1")["version"]
    path = job.path / "embeddings" / "versions" / version / "_manifest.json"
    path.write_text(path.read_text().replace('"rowType"', '"rowTypes"'))
    job.change_edges(1)
    why = job.night("1x1")["refresh"]["why"]
    assert why == f"the manifest of version {version} was changed after it was published"


def test_plans_say_what_a_run_would_take_over(job: NightlyJob) -> None:
    kept, *more = job.planned("2x1")
    assert not [note for note in more if note.startswith("a run would")]
    first = job.night("2x1")["version"]
    (layers,) = job.kept()
    rows, digests, graph = (human_bytes(size) for size in job.kept_sizes(layers))
    assert kept == (
        "the rows of its layers are kept below the output for the run that follows:"
        f" {rows}, {digests} of digests, and the graph, which is read in place of edges that have"
        f" not changed: {graph} (refresh.keep)"
    )
    confirms = f"a run would confirm version {first}: nothing has changed since"
    assert job.planned("2x1")[0] == confirms
    job.change_edges(1)
    assert job.planned("2x1")[0] == (
        f"a run would compute only rows that have changed since version {first}; the last full run"
        f" was that of version {first}"
    )
    other = f"version {first} was computed with grid 2x1, not 1x1"
    assert job.planned("1x1")[0] == f"a run would compute all rows: {other}"
    job.set(keep=True, mode="full")
    assert (
        job.planned("2x1")[0]
        == "a run would compute all rows: spec.refresh.mode is full, or --force was given"
    )


def _digests(job: NightlyJob) -> dict[str, KeptTensor]:
    """Name -> the digests of the current version, and the degrees beside them."""
    (kept,) = job.kept()
    seals = [seal for seal in seals_of(job.storage, job.uri, kept.key) if seal.layer == 0]
    return {tensor.name: tensor for seal in seals for tensor in seal.tensors}


def _features(job: NightlyJob) -> Path:
    return min(path for path in (job.path / "features").rglob("*.*") if path.is_file())


def test_inputs_that_have_not_changed_are_not_compared(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "12", "--kind", "uniform")
    kept = job.night("2x1")["kept"]
    assert kept["written_bytes"] == kept["kept_bytes"]
    before = _digests(job)
    job.change_edges(1)
    kept = job.night("2x1")["kept"]
    assert 0 < kept["written_bytes"] < 0.75 * kept["kept_bytes"]
    after = _digests(job)
    assert after["features "].made_of == before["features "].made_of != ""
    paths = [block.path for block in before["features "].blocks]
    assert [block.path for block in after["features "].blocks] == paths
    assert not after["features "].patches
    assert after["features "].parts == before["features "].parts != ()
    assert after["in-edges "].parts != before["in-edges "].parts
    assert len(after["in-edges "].patches) == 1
    # The same bytes in another file count as changed, and are compared.
    path = _features(job)
    path.write_bytes(path.read_bytes())
    job.change_edges(2)
    job.night("2x1")
    assert _digests(job)["features "].parts != after["features "].parts
    assert job.same_as_whole("2x1")


def test_features_whose_time_was_set_back_are_compared(job: NightlyJob) -> None:
    """A file of the same size, inode and time of modification has the same ETag."""
    path = _features(job)
    pq.write_table(pq.read_table(path), path)
    job.night("1x1")
    before = _digests(job)["features "]
    times, table = path.stat(), pq.read_table(path)
    rows = table.column_names.index("x")
    order = np.r_[1, 0, 2 : len(table)]
    swapped = table.set_column(rows, "x", table["x"].take(order))
    written = pa.BufferOutputStream()
    pq.write_table(swapped, written)
    with path.open("r+b") as file:
        file.write(written.getvalue())
    assert path.stat().st_size == times.st_size
    assert pq.read_table(path) == swapped
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    job.change_edges(1)
    report = job.night("1x1")
    assert report["refresh"]["mode"] == "incremental"
    after = _digests(job)["features "]
    assert after.made_of == before.made_of
    assert len(after.patches) == 1
    assert job.same_as_whole("1x1")


def test_rows_of_files_that_were_written_to_in_place_are_kept_again(job: NightlyJob) -> None:
    """A run of the same inputs, by their sizes and times, has the key of the one before."""
    write_features(job, 0.0)
    first = job.night("1x1")["version"]
    write_features(job, 1.0)
    report = job.night("1x1")
    assert report["refresh"]["why"] == f"its inputs are those of version {first}"
    assert "was touched after it was read" in report["kept"]["problems"][0]
    (kept,) = job.kept()
    seals = list(seals_of(job.storage, job.uri, kept.key))
    # The edges are those that they were, and so is their graph.
    assert {seal.version for seal in seals if seal.edges is None} == {report["version"]}
    assert report["kept"]["graph"] == ["node:edge:node"]
    of_version = embertide.read(job.uri).to_numpy()
    (vector,) = embed_over_kept(load_manifest(job.path / "job.yaml"), [7]).vectors
    assert np.array_equal(of_version[1][of_version[0] == 7][0], vector)
    job.change_edges(1)
    assert job.night("1x1")["refresh"]["mode"] == "incremental"
    assert job.same_as_whole("1x1")


def write_features(job: NightlyJob, more: float) -> None:
    """Add to a value of a few rows, as a tool does that keeps sizes and times."""
    (path,) = (job.path / "features").glob("*.parquet")
    table, status = pq.read_table(path), path.stat()
    rows = np.array(table["x"].to_pylist(), np.float32)
    rows[7:10, 0] += more
    values = pa.array(list(rows), table.schema.field("x").type)
    table = table.set_column(table.schema.get_field_index("x"), "x", values)
    file = pa.BufferOutputStream()
    pq.write_table(table, file, compression="none", use_dictionary=False, write_statistics=False)
    data = file.getvalue().to_pybytes()
    if more:
        assert len(data) == status.st_size
    with path.open("r+b" if more else "wb") as out:
        out.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
