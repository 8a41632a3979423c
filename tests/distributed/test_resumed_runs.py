"""A run that is killed is gone on with: the next one begins after the last layer that was kept."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import await_nobody
from tests.support.resumed import LAYERS, Job

pytestmark = pytest.mark.distributed

GRIDS = ("2x1", "1x2", "2x2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("resumed"), GRIDS)


@pytest.fixture
def job(made: Job) -> Job:
    made.clean()
    return made


def test_a_run_goes_on_after_the_last_layer_that_was_kept(job: Job) -> None:
    done = job.killed_after(2)
    assert "was killed by SIGKILL" in done.message
    versions = job.versions()
    assert job.kept() == [1, 2]
    report = job.again("2x1")
    assert (report["kept"]["resumed"], report["kept"]["layers"]) == (2, LAYERS)
    assert report["kept"]["kept"] == []
    assert job.rows() == job.bits["2x1"]
    assert job.versions() == versions + 1
    assert not (job.path / "embeddings" / "_layers").exists()


@pytest.mark.parametrize("grid", ["1x2", "2x2", "1x1"])
def test_another_grid_goes_on(grid: str, job: Job) -> None:
    job.killed_after(1)
    report = job.again(grid)
    assert report["kept"]["resumed"] >= 1
    assert job.rows() == job.bits["2x1"]


def test_no_resume_computes_all_and_removes_what_was_kept(job: Job) -> None:
    job.killed_after(1)
    report = job.again("2x1", "--no-resume")
    assert report["kept"] == {
        "resumed": 0, "layers": 0, "kept": [], "kept_bytes": 0, "wait_seconds": 0.0,
        "problems": [],
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
    (warning,) = [text for text in report["warnings"] if "is not kept" in text]
    assert "_layers" in warning


def test_random_kills_lose_nothing(job: Job, pytestconfig: pytest.Config) -> None:
    """A worker or the whole command, at any moment, on any grid; then a run to the end."""
    chance = random.Random(pytestconfig.getoption("randomly_seed", None) or time.time())
    resumed = []
    for _ in range(20 if pytestconfig.getoption("--thorough") else 3):
        for _ in range(chance.choice((1, 2))):
            _kill_at_random(job, chance)
        grid = chance.choice(GRIDS)
        report = job.again(grid)
        resumed.append(report["kept"]["resumed"])
        assert job.rows() in job.bits.values()
        assert job.kept() == []
    print("resumed after layers", resumed)


def _kill_at_random(job: Job, chance: random.Random) -> None:
    grid = chance.choice(GRIDS)
    run = job.run(grid, "--resume")
    count = int(grid[0]) * int(grid[2])
    try:
        run.await_stage(chance.choice(("csr", "infer", "infer", "infer")))
        time.sleep(chance.random() * 1.5)
        workers = run.workers(count)
    except AssertionError:
        # It was over before.
        run.process.wait()
        await_nobody(run.process.pid)
        return
    if chance.random() < 0.5:
        os.kill(chance.choice(workers), signal.SIGKILL)
    else:
        os.killpg(run.process.pid, signal.SIGKILL)
    run.process.wait()
    await_nobody(run.process.pid)
