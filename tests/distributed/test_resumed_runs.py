"""A run that is killed is gone on with: the next one begins after the last layer that was kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from embertide.errors import SelfCheckFailed
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.catalog import list_layers
from embertide.io.versions.layers.seals import ITEM_BYTES, PAGE_BYTES
from tests.support import random_kills
from tests.support.commands import Commands, environment
from tests.support.random_kills import RandomKills
from tests.support.resumed import LAYERS, NODES, Job
from tests.support.small_job import SmallJob
from tests.support.tiers import later

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("resumed"), ("2x1",))


@pytest.fixture
def job(made: Job) -> Job:
    made.clean()
    return made


@pytest.mark.tier(1)
def test_a_run_goes_on_after_the_last_layer_that_was_kept(job: Job) -> None:
    done = job.killed_after(2)
    assert "was killed by SIGKILL" in done.message
    versions = job.versions()
    assert job.kept() == [1, 2]
    report = job.again("2x1")
    assert (report["kept"]["resumed"], report["kept"]["layers"]) == (2, LAYERS)
    assert report["kept"]["graph"] == ["node:edge:node"]
    assert report["kept"]["kept"] == []
    assert job.rows() == job.bits["2x1"]
    assert job.versions() == versions + 1
    assert not (job.path / "embeddings" / "_layers").exists()


def test_a_run_with_its_tensors_on_disk_goes_on(tmp_path: Path) -> None:
    job, disk = Job(tmp_path, ("2x1",), scale=17), tmp_path / "scratch"
    disk.mkdir()
    small = "--memory", SMALL, "--scratch", str(disk)
    assert "was killed by SIGKILL" in job.killed_after(2, "2x1", *small).message
    report = job.again("2x1", "--resume", *small)
    assert (report["kept"]["resumed"], report["kept"]["kept"]) == (2, [])
    assert all(worker["scratch_bytes_read"] > 0 for worker in report["workers"])
    assert job.rows() == job.bits["2x1"]
    assert not list(disk.iterdir())


@pytest.mark.parametrize("grid", later(["1x2", "2x2", "1x1"], "1x2"))
def test_another_grid_goes_on(grid: str, job: Job) -> None:
    job.killed_after(1)
    report = job.again(grid)
    assert report["kept"]["resumed"] >= 1
    assert report["kept"]["graph"] == ["node:edge:node"]
    assert job.rows() == job.bits["2x1"]


def test_some_nodes_are_computed_over_the_layers_that_were_kept(job: Job) -> None:
    job.killed_after(2)
    ids = [5, 900, 31_000]
    done = job.embed(*ids)
    assert done.code == 0, done.err
    assert "3 embeddings over" in done.err
    assert "after the kept layer 2" in done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["id"] for line in lines] == ids
    whole = np.frombuffer(job.bits["2x1"], np.float32).reshape(NODES, -1)
    found = np.array([line["embedding"] for line in lines], np.float32)
    assert np.abs(found - whole[ids]).max() <= 1e-5 * np.abs(whole).max()
    assert job.kept() == [1, 2], "the next attempt still goes on after them"
    assert job.again("2x1")["kept"]["resumed"] == 2


def _sources(job: Job, ids: list[int]) -> NDArray[np.int64]:
    """The nodes whose rows some are made of, ascending."""
    edges = pq.read_table(job.path / "edges")
    source, destination = (edges[name].to_numpy() for name in ("src", "dst"))
    return np.union1d(ids, source[np.isin(destination, ids)])


def _spoil(job: Job, layer: int, rows: NDArray[np.int64], *, theirs: bool) -> None:
    """Change all pages of a layer with some rows, or all that are not near those."""
    folder, seal = job.seal_of(layer)
    for block in seal.tensors[0].blocks:
        path = Path(f"{folder.removeprefix('file://')}/{block.path}")
        data = np.fromfile(path, np.uint8)
        row_bytes = (block.right - block.left) * ITEM_BYTES["float32"]
        own = rows[(rows >= block.first) & (rows < block.last)] - block.first
        pages = np.arange(0, len(data), PAGE_BYTES)
        away = np.abs(pages[:, None] // PAGE_BYTES - own * row_bytes // PAGE_BYTES)
        changed = pages[away.min(1) == 0 if theirs else away.min(1) > 2]
        assert len(changed)
        data[changed] ^= 1
        data.tofile(path)


def test_of_a_kept_layer_the_pages_are_read_that_some_nodes_need(job: Job) -> None:
    job.killed_after(2)
    ids = [5, 900, 31_000]
    before, needed = job.embed(*ids), _sources(job, ids)
    _spoil(job, 2, needed, theirs=False)
    after = job.embed(*ids)
    assert "after the kept layer 2" in after.err
    assert after.out == before.out
    _spoil(job, 2, needed, theirs=True)
    damaged = job.embed(*ids)
    assert "after the kept layer 1" in damaged.err
    assert "does not match its checksum" in damaged.err
    assert job.kept() == [1]


def test_no_resume_computes_all_and_removes_what_was_kept(job: Job) -> None:
    job.killed_after(1)
    report = job.again("2x1", "--no-resume")
    assert report["kept"] == {
        "resumed": 0, "version": "", "layers": 0, "kept": [], "kept_bytes": 0,
        "written_bytes": None, "graph": [], "graph_bytes": 0, "graph_written_bytes": 0,
        "wait_seconds": 0.0, "problems": [],
    }  # fmt: skip
    assert job.kept() == []


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("spoil", [_flip, Path.unlink])
def test_a_damaged_layer_is_computed_again_with_a_warning(
    spoil: Callable[[Path], None], job: Job
) -> None:
    job.killed_after(2)
    path = Path(job.block_of(2).removeprefix("file://"))
    spoil(path)
    report = job.again("2x1")
    assert (report["kept"]["resumed"], report["kept"]["kept"]) == (1, [2])
    assert job.rows() == job.bits["2x1"]
    (warning,) = [text for text in report["warnings"] if "kept layer" in text]
    assert path.name in warning


def test_another_model_or_input_computes_all(job: Job) -> None:
    job.killed_after(2)
    weights = job.path / "model" / "weights.safetensors"
    before = weights.read_bytes()
    try:
        data = bytearray(before)
        data[-5] ^= 1  # a bias of the last layer: the layers before are the same
        weights.write_bytes(data)
        assert job.again("2x1")["kept"]["resumed"] == 2
        assert job.rows() != job.bits["2x1"]
        job.killed_after(2)
        edges = next((job.path / "edges").iterdir())
        edges.touch()
        assert job.again("2x1")["kept"]["resumed"] == 0
    finally:
        weights.write_bytes(before)


def test_a_disk_that_takes_no_blocks_is_a_warning(job: Job) -> None:
    folder = job.path / "embeddings" / "_layers"
    folder.write_bytes(b"")
    try:
        report = job.again("2x1")
    finally:
        folder.unlink()
    assert report["kept"]["kept"] == []
    assert job.rows() == job.bits["2x1"]
    layer, graph = sorted(text for text in report["warnings"] if "is not kept" in text)
    assert layer.startswith("layer 1 is not kept")
    assert graph.startswith("the graph of ")
    assert all("_layers" in text for text in (layer, graph))


def test_a_layer_that_cannot_be_sealed_does_not_count_as_kept(job: Job) -> None:
    job.killed_after(2)
    for uri in job.kept_objects():
        if uri.endswith(".seal.json"):
            path = Path(uri.removeprefix("file://"))
            path.unlink()
            (path / "in_the_way").mkdir(parents=True)
    report = job.again("2x1")
    assert (report["kept"]["resumed"], report["kept"]["kept"]) == (0, [])
    assert report["kept"]["kept_bytes"] == 0
    assert job.rows() == job.bits["2x1"]
    # The layers are sealed, or are not, while the graph may still be written.
    warnings = sorted(text for text in report["warnings"] if "is not kept" in text)
    first, second, graph = warnings
    assert graph.startswith("the graph of ")
    assert first.startswith("layer 1 is not kept")
    assert second.startswith("layer 2 is not kept")


def test_random_kills_lose_nothing(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A worker or the whole command, at any moment, on any grid; then a run to the end."""
    job = Job(tmp_path, random_kills.GRIDS, scale=10)
    kills = RandomKills.of(job, pytestconfig)
    kills.kill(100 if pytestconfig.option.tier == 3 else 3)


SMALL = "520MiB"
"""With all tensors in memory a worker of 2^17 nodes needs 544 MiB."""
FAULT = """
from embertide.program.steps.op import Op

plain = Op.lower

def lower(self, execution):
    made = plain(self, execution)
    if self.steps[0].layer == 0 and self.steps[0].edges is not None:
        made.data[0, 2] += 1
    return made

Op.lower = lower
"""
"""Changes a value in what layer 1 makes, in every process of a command."""


def test_a_layer_that_differs_when_it_is_computed_again_is_not_kept(tmp_path: Path) -> None:
    """A next attempt would go on after it, and not compute it again."""
    job = SmallJob.make(tmp_path / "job")
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    env = environment()
    command = [sys.executable, "-m", "embertide", "run", job.manifest, "--resume"]
    faulty = {"PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"}
    failed = subprocess.run(command, env=env | faulty, capture_output=True, text=True, check=False)
    assert failed.returncode == SelfCheckFailed.exit_code, failed.stderr
    assert [kept.layers for kept in list_layers(open_storage(None), job.output.as_uri())] in (
        [], [[]]
    )  # fmt: skip
    done = Commands(tmp_path).run(*command[3:], "--json")
    assert done.code == 0, done.err
    report = done.events[-1]
    assert (report["kept"]["resumed"], report["kept"]["kept"]) == (0, [1])
