"""The graph that a version has kept is read in place of edges that have not changed since."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.support.patience import WAIT_SECONDS
from tests.support.refreshed_job import NightlyJob
from tests.support.tiers import later

pytestmark = pytest.mark.distributed

EDGES = "node:edge:node"


@pytest.fixture
def job(tmp_path: Path) -> NightlyJob:
    return NightlyJob(tmp_path, "--scale", "10")


def _counts(report: dict[str, Any]) -> tuple[object, ...]:
    """What a report says of the edges."""
    return report["edges"], report["relations"], report["omissions"]


@pytest.mark.parametrize("grid", later(["1x1", "2x1", "1x2", "2x2"], "2x2"))
def test_a_graph_that_is_read_back_gives_the_bits_of_its_edges(grid: str, tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--ids", "int64", "--weights")
    first = job.night(grid)
    kept = first["kept"]
    assert kept["graph"] == []
    assert kept["graph_written_bytes"] == kept["graph_bytes"] == job.kept_sizes(job.kept()[0])[2]
    assert job.kept()[0].with_graph
    job.change_features(_some_ids(job))
    report = job.night(grid)
    assert report["kept"]["graph"] == [EDGES]
    assert report["kept"]["problems"] == []
    assert (report["kept"]["graph_bytes"], report["kept"]["graph_written_bytes"]) == (
        kept["graph_bytes"], 0,
    )  # fmt: skip
    assert _counts(report) == _counts(first)
    assert report["refresh"]["mode"] == "incremental"
    assert job.same_as_whole(grid)
    # What was carried over is there for the third night too.
    job.change_features(_some_ids(job))
    assert job.night(grid)["kept"]["graph"] == [EDGES]
    job.change_edges(1)
    report = job.night(grid)
    assert report["kept"]["graph"] == []
    assert report["kept"]["graph_written_bytes"] > 0
    assert report["kept"]["problems"] == []
    assert job.same_as_whole(grid)


def _some_ids(job: NightlyJob) -> list[int]:
    """Ids of a few nodes."""
    path = sorted((job.path / "features").glob("*.parquet"))[0]
    ids: list[int] = pq.read_table(path)["id"].to_pylist()
    return ids[3:9]


def test_another_grid_reads_it_and_so_does_another_model(job: NightlyJob) -> None:
    job.night("2x1")
    job.change_features([5])
    assert job.night("1x2")["kept"]["graph"] == [EDGES]
    assert job.same_as_whole("1x2")
    weights = job.path / "model" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    report = job.night("1x2")
    assert (report["kept"]["graph"], report["kept"]["problems"]) == ([EDGES], [])
    assert job.same_as_whole("1x2")
    assert "--force" in job.night("1x2", "--force")["refresh"]["why"]
    job.change_features([6])
    job.set(keep=True, mode="full")
    assert job.night("1x2")["kept"]["graph"] == []


def test_a_model_that_reads_features_of_edges_is_given_them(tmp_path: Path) -> None:
    sizes = ("--scale", "8", "--width", "8", "--hidden", "8", "--embedding", "8", "--layers", "2")
    job = NightlyJob(tmp_path, *sizes, "--conv", "edge_gat", "--edge-features", "8")
    (tmp_path / "other").mkdir()
    other = NightlyJob(tmp_path / "other", *sizes, "--conv", "gin")
    shutil.rmtree(job.path / "model")
    shutil.copytree(other.path / "model", job.path / "model")
    # The first model reads none, so its graph has none.
    assert job.night("1x1")["kept"]["graph_bytes"] > 0
    text = job.path / "model" / "model.yaml"
    text.write_text(text.read_text().replace("conv: gin,", "conv: gine,"))
    assert job.night("1x1")["kept"]["graph"] == []
    assert job.same_as_whole("1x1")


def test_a_graph_of_other_nodes_is_not_used(job: NightlyJob) -> None:
    job.night("2x1")
    job.add_nodes("", 3)
    report = job.night("2x1")
    assert (report["kept"]["graph"], report["kept"]["problems"]) == ([], [])
    assert report["kept"]["graph_written_bytes"] == report["kept"]["graph_bytes"] > 0
    assert job.same_as_whole("2x1")


@pytest.mark.parametrize("part", later([0, 1, 2], 2))
def test_a_graph_that_is_damaged_is_built_again_with_a_warning(part: int, job: NightlyJob) -> None:
    job.night("2x1")
    job.change_features([5])
    job.damage_graphs(part)
    report = job.night("2x1")
    assert report["kept"]["graph"] == []
    (warning,) = report["kept"]["problems"]
    assert warning in report["warnings"]
    assert warning.startswith(f"the kept graph of {EDGES} is not used, and its edges are read: ")
    assert warning.endswith("does not match its checksum")
    assert job.same_as_whole("2x1")
    job.change_features([6])
    assert job.night("2x1")["kept"]["graph"] == [EDGES]
    assert job.same_as_whole("2x1")


def _swap_in_place(path: Path) -> None:
    """Other edges in a file of the same size and time."""
    times = path.stat()
    edges = np.load(path, mmap_mode="r+")
    edges[:40, 0] = edges[40:80, 0].copy()
    edges.flush()
    del edges
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size


def test_edges_that_were_written_to_in_place_are_read(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--edge-format", "npy")
    (path,) = (job.path / "edges").glob("*.npy")
    job.night("1x1")
    _swap_in_place(path)
    job.change_features([5])
    report = job.night("1x1")
    assert report["kept"]["graph"] == []
    (warning,) = report["kept"]["problems"]
    assert warning.endswith("was touched after it was read")
    assert job.same_as_whole("1x1")
    # Nothing but the same file: the run has the key of the one before.
    _swap_in_place(path)
    assert job.night("1x1")["kept"]["graph"] == []
    assert job.same_as_whole("1x1")
    job.change_features([6])
    assert job.night("1x1")["kept"]["graph"] == [EDGES]
    assert job.same_as_whole("1x1")


@pytest.mark.parametrize("grid", later(["2x1", "2x2"], "2x1"))
def test_edge_types_are_read_back_one_by_one(grid: str, tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--hetero")
    first = job.night(grid)
    relations = sorted(item["name"] for item in first["relations"])
    job.touch_features()
    report = job.night(grid)
    assert sorted(report["kept"]["graph"]) == relations
    assert _counts(report) == _counts(first)
    assert job.same_as_whole(grid)
    of_type = job.change_one_edge_type(1)
    report = job.night(grid)
    others = [name for name in relations if name.split(":")[1] not in of_type]
    assert len(others) == len(relations) - 2
    assert sorted(report["kept"]["graph"]) == others
    assert report["kept"]["graph_written_bytes"] < report["kept"]["graph_bytes"]
    assert job.same_as_whole(grid)


def test_a_killed_run_leaves_its_graph_to_the_next_attempt(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "15")
    job.night("2x1")
    job.change_edges(1)
    assert job.killed("2x1").code != 0
    report = job.night("2x1")
    assert report["kept"]["graph"] == [EDGES]
    assert job.same_as_whole("2x1")


def test_a_key_is_in_use_as_soon_as_its_graph_is_written(job: NightlyJob) -> None:
    folder = job.path / "embeddings" / "_layers"
    run = job.run("job.yaml", "1x1")
    deadline = time.monotonic() + WAIT_SECONDS
    while not list(folder.glob("*/blocks/*/*")):
        assert time.monotonic() < deadline
        assert run.process.poll() is None
        time.sleep(0.001)
    assert list(folder.glob("*/attempts/*-keeps.json"))
    assert run.done(WAIT_SECONDS).code == 0
    assert not list(folder.glob("*/attempts/*"))


def test_rows_and_dropped_edges_count_as_if_they_were_read(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--edge-format", "csv")
    job.change_job(lambda spec: spec["input"]["edges"][0].update(
        unknownNodes={"action": "drop", "maxShare": "50%"}, minEdges=100
    ))  # fmt: skip
    path = min((job.path / "edges").iterdir())
    path.write_text(path.read_text() + "5,99999\n" * 30)
    first = job.night("2x1")
    (dropped,) = first["omissions"]["droppedEdges"]
    assert dropped["edges"] == 30
    job.change_features([5])
    report = job.night("2x1")
    assert report["kept"]["graph"] == [EDGES]
    assert _counts(report) == _counts(first)
    assert job.manifest()["read"]["edges"] == {EDGES: dropped["rows"]}
    job.change_job(lambda spec: spec["input"]["edges"][0].update(minEdges=10**7))
    job.change_features([6])
    done = job.run("job.yaml", "2x1").done(WAIT_SECONDS)
    assert done.code != 0
    assert "minEdges" in done.err
