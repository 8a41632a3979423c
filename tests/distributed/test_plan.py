"""What `embertide plan` says of a real job, and what `embertide run` refuses on a small machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.kernels.staging import PINNED_BYTES
from tests.support.commands import Commands
from tests.support.small_job import NODES, WIDTH, SmallJob

pytestmark = pytest.mark.distributed

GRID = 7
MANY_NODES = 8192


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    return SmallJob.make(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> SmallJob:
    job = SmallJob.make(tmp_path_factory.mktemp("larger"))
    ids = np.arange(MANY_NODES)
    job.write_edges(ids, np.roll(ids, 1))
    job.write_features(ids, np.ones((MANY_NODES, WIDTH)))
    return job


def planned(commands: Commands, job: SmallJob, *options: str) -> dict[str, Any]:
    done = commands.run("plan", job.manifest, "--json", *options)
    assert (done.code, done.err) == (0, "")
    (found,) = done.events
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_the_table_of_grids_agrees_with_a_plan_of_each(commands: Commands, job: SmallJob) -> None:
    before = files(job.folder)
    plans = {grid: planned(commands, job, "--grid", grid) for grid in ("1x1", "2x1", "2x2")}
    for grid, plan in plans.items():
        (chosen,) = [needs for needs in plan["grids"] if needs["chosen"]]
        assert "x".join(map(str, chosen["grid"])) == grid
        assert chosen["traffic_total_bytes"] == plan["traffic_total_bytes"]
        assert chosen["seconds"] == plan["seconds"]
        assert chosen["worker_bytes"] > plan["peak_memory_per_worker_bytes"]
        assert chosen["container_bytes"] > chosen["worker_bytes"]
        for needs in plan["grids"]:
            other = plans.get("x".join(map(str, needs["grid"])))
            if other is not None:
                same = [it for it in other["grids"] if it["grid"] == needs["grid"]]
                assert same == [needs | {"chosen": same[0]["chosen"]}]
    assert files(job.folder) == before


def test_a_plan_says_how_much_is_written_and_how_long_it_takes(
    commands: Commands, job: SmallJob
) -> None:
    plan = planned(commands, job)
    assert plan["output_uri"].rstrip("/") == f"file://{job.output}"
    assert plan["output_bytes"] == NODES * (4 * WIDTH + 8)
    assert plan["output_problem"] == ""
    low, high = plan["seconds"]
    assert 0 <= low < high
    begin, end = plan["start_seconds"]
    assert 0 <= begin < end
    assert f"each of {os.cpu_count()} cores" in plan["seconds_basis"]


def test_gpus_have_memory_of_their_own_and_no_seconds(
    commands: Commands, job: SmallJob, tmp_path: Path
) -> None:
    cpu = planned(commands, job)
    assert cpu["pinned_bytes"] == cpu["gpu_memory_per_worker_bytes"] == 0
    gpu = job.copy(tmp_path)
    gpu.write_manifest(workers__device="cuda")
    plan = planned(commands, gpu)
    assert plan["pinned_bytes"] == PINNED_BYTES
    assert plan["gpu_memory_per_worker_bytes"] > 0
    assert max(plan["memory_per_worker_bytes"].values()) > PINNED_BYTES
    assert "on the GPU" in commands.run("plan", gpu.manifest).out
    assert plan["seconds"] is None
    assert [needs["seconds"] for needs in plan["grids"]] == [None] * len(plan["grids"])


def test_too_many_workers_end_with_a_sentence(commands: Commands, larger: SmallJob) -> None:
    cores = os.cpu_count() or 1
    workers = 8 * cores + 1
    done = commands.run("run", larger.manifest, "--workers", str(workers))
    assert done.code == GRID
    assert done.message == (
        f"grid {workers}x1 has {workers} workers, but this machine has"
        f" {cores} core{'s' if cores > 1 else ''}, on which they would only take turns; use at"
        f" most {8 * cores} workers here, {cores} or fewer to be quick"
    )
    assert not larger.output.exists()
    plan = planned(commands, larger, "--workers", str(workers))
    assert plan["notes"] == [f"no run on this machine: {done.message}"]
