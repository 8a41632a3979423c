"""A plan for GPUs, compared with the memory that these have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from embertide.cli.options import with_workers
from embertide.edge.synth.job import synthesize
from embertide.edge.synth.options import SynthOptions
from embertide.engine.planning.estimate import estimate_program, estimate_within
from embertide.engine.planning.inputs import list_inputs
from embertide.errors import WorkerFailed
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.format import asked_bytes, human_bytes
from embertide.io.storage.opening import open_storage
from embertide.launch.scratch import check_scratch
from embertide.launch.worker import _explained
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest

ALONE, NODES = GridShape(), 1 << 17


class Planned:
    """A job of small features and layers of 256 columns, on GPUs."""

    def __init__(self, folder: Path) -> None:
        storage = open_storage(None)
        options = SynthOptions(nodes=NODES, edges=1 << 16, width=16, hidden=256, out=16, layers=3)
        synthesize(storage, folder.as_uri(), options)
        self.job = with_workers(load_manifest(folder / "job.yaml"), device="cuda")
        self.inputs = list_inputs(storage, self.job)
        self.program = read_model(storage, self.job.spec.model.uri)

    def on(self, panel: int = 0, grid: GridShape = ALONE) -> Estimate:
        """With so many columns on the GPU at a time."""
        return estimate_program(self.program, self.job, self.inputs, grid, panel=panel)

    def within(self, device_bytes: int | None, rows: str = "float32", **workers: Any) -> Estimate:
        """On a GPU that has so many bytes free."""
        job = with_workers(self.job, **workers)
        inference = job.spec.inference.model_copy(update={"rows": rows})
        job = job.model_copy(update={"spec": job.spec.model_copy(update={"inference": inference})})
        return estimate_within(self.program, job, self.inputs, ALONE, device_bytes=device_bytes)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return Planned(tmp_path_factory.mktemp("job"))


def test_without_a_known_gpu_all_is_planned_to_be_on_it(planned: Planned) -> None:
    found = planned.within(None)
    assert (found.device_budget, found.staged, found.panel) == (None, None, 0)


def test_what_fits_stays_on_the_gpu(planned: Planned) -> None:
    needed = planned.on().gpu_memory_per_worker_bytes
    found = planned.within(needed)
    assert (found.staged, found.panel, found.problem) == (None, 0, "")
    assert found.device_budget is not None
    assert found.device_budget.sentence.startswith("fits: ")


def test_as_many_columns_are_on_the_gpu_as_fit_and_the_host_has_the_rest(planned: Planned) -> None:
    whole, part, less = planned.on(), planned.on(64), planned.on(32)
    needed = part.gpu_memory_per_worker_bytes
    assert less.gpu_memory_per_worker_bytes < needed < whole.gpu_memory_per_worker_bytes
    found = planned.within(needed)
    assert (found.panel, found.spill, found.problem) == (64, None, "")
    assert found.staged is not None
    assert found.staged.disk_bytes >= 4 * NODES * 2 * 256, "two layers of hidden columns"
    # In host memory is all that is there at a time, beside the graph.
    more = found.memory_per_worker_bytes["infer"] - whole.memory_per_worker_bytes["infer"]
    assert 0.9 * found.staged.disk_bytes < more < 1.1 * found.staged.disk_bytes
    assert found.device_budget is not None
    assert found.device_budget.sentence == (
        f"keeps {human_bytes(found.staged.disk_bytes)} of each worker in host memory, 64 columns"
        f" at a time on the GPU ({human_bytes(found.staged.read_bytes)} copied to it,"
        f" {human_bytes(found.staged.written_bytes)} back): {human_bytes(needed)} of"
        f" {human_bytes(needed)} a worker"
    )


def test_the_memory_that_the_job_gives_counts_more_than_what_is_free(planned: Planned) -> None:
    mib = planned.on(64).gpu_memory_per_worker_bytes / (1 << 20)
    found = planned.within(1 << 40, device_memory=f"{mib + 0.002:.3f}MiB")
    assert found.panel == 64


def test_no_folder_for_tensors_on_disk_is_looked_at(planned: Planned) -> None:
    found = planned.within(planned.on(64).gpu_memory_per_worker_bytes)
    check_scratch(with_workers(planned.job, scratch="/no/such/folder"), found, 1)


def test_what_never_fits_names_what_has_most_on_the_gpu_and_the_fewest_workers(
    planned: Planned,
) -> None:
    least = planned.on(4).gpu_memory_per_worker_bytes
    found = planned.within(least - 1)
    for part in (
        "grid 1x1 needs ",
        "on the GPU of a worker (--gpu-memory, spec.workers.deviceMemory) with tensors in host"
        " memory, of which ",
        "has most on the GPU at a time; the graph is on the GPU, too; use at least 2 workers (grid"
        f" 2x1), or give each {asked_bytes(least)}",
    ):
        assert part in found.problem
    assert found.device_budget is not None
    assert found.device_budget.sentence == found.problem


def test_rows_of_bfloat16_stay_on_the_gpu(planned: Planned) -> None:
    found = planned.within(planned.on(16).gpu_memory_per_worker_bytes, rows="bfloat16")
    assert "; rows: bfloat16 can't be in host memory; " in found.problem


def test_a_full_gpu_is_no_traceback() -> None:
    error = _explained(torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB.\nMore"), 3)
    assert isinstance(error, WorkerFailed)
    assert str(error).startswith(
        "worker 3: its GPU has no memory left (CUDA out of memory. Tried 2 GiB.); give workers a"
        " smaller --gpu-memory"
    )
    other = ValueError("no")
    assert _explained(other, 3) is other
