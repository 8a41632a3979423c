"""What a run asks of the system's memory and disk before and while it reads."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from embertide.cli.options import with_memory
from embertide.cli.tables import print_estimate
from embertide.edge.synth.job import synthesize
from embertide.edge.synth.options import SynthOptions
from embertide.engine.planning.estimate import estimate_job, estimate_program, estimate_within
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.sizing import worker_bytes
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.memory import arrow_on_the_heap
from embertide.io.storage import reading_ahead
from embertide.io.storage.opening import open_storage
from embertide.launch.bootstrap.start import first_read, plan_run, prepare
from embertide.launch.run_folder import RunFolder
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.small_job import SmallJob


def test_arrow_is_on_the_heap_for_a_while() -> None:
    before = pa.default_memory_pool().backend_name
    with arrow_on_the_heap():
        assert pa.default_memory_pool().backend_name == "system"
    assert pa.default_memory_pool().backend_name == before


def test_features_and_their_ids_are_read_first_each_object_once(tmp_path: Path) -> None:
    job = load_manifest(Path(SmallJob.make(tmp_path).manifest))
    inputs = list_inputs(open_storage(None), job)
    ((name, nodes),) = inputs.by_nodes.items()
    uri, split = nodes.features[0].uri, replace(nodes.features[0], ids_uri="file:///ids")
    given = replace(inputs, by_nodes={name: replace(nodes, features=[split, split])})
    assert first_read(given) == [uri, "file:///ids"]


def test_the_disk_begins_before_anything_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(uris: list[str], most_bytes: int) -> None:
        assert most_bytes > 0
        raise InterruptedError(*uris)

    monkeypatch.setattr(reading_ahead, "begin_to_read", begin)
    job, storage = load_manifest(Path(SmallJob.make(tmp_path).manifest)), open_storage(None)
    with pytest.raises(InterruptedError) as reached:
        prepare(
            RunFolder(tmp_path),
            job,
            storage,
            version="20261121T120000Z-abcdef",
            grid=None,
            began=0.0,
            on_progress=lambda _progress: None,
            on_planned=lambda _estimate: None,
        )
    assert list(reached.value.args) == first_read(list_inputs(storage, job))


def test_workers_in_pods_are_planned_to_exchange_rows_as_their_planner_does(tmp_path: Path) -> None:
    job, storage = load_manifest(Path(SmallJob.make(tmp_path).manifest)), open_storage(None)
    inputs, grid = list_inputs(storage, job), GridShape.of(2, 1)
    here, apart = (
        plan_run(job, inputs, grid, None, RunFolder(tmp_path), workers_here=count)
        for count in (None, 1)
    )
    planner = estimate_within(read_model(storage, job.spec.model.uri), job, inputs, grid)
    assert apart.memory_per_worker_bytes == planner.memory_per_worker_bytes
    assert apart.traffic == planner.traffic
    assert here.traffic != planner.traffic


def test_a_plan_has_the_answer_of_a_run_on_this_machine_beside_that_of_pods(tmp_path: Path) -> None:
    storage = open_storage(None)
    options = SynthOptions(nodes=1 << 15, edges=1 << 17, width=16, hidden=1024, out=16, layers=3)
    synthesize(storage, tmp_path.as_uri(), options)
    job, grid = load_manifest(tmp_path / "job.yaml"), GridShape.of(2, 1)
    inputs = list_inputs(storage, job)
    needs = plan_run(job, inputs, grid, None, RunFolder(tmp_path)).peak_memory_per_worker_bytes
    tight = with_memory(job, f"{worker_bytes(needs) // (1 << 20) + 1}MiB")
    planned = estimate_job(tight, grid=grid)
    run = plan_run(tight, inputs, grid, None, RunFolder(tmp_path))
    assert run.budget is not None
    assert run.budget.sentence.startswith("fits")
    assert planned.budget_here == run.budget
    assert planned.budget is not None
    assert planned.budget.needed_bytes != run.budget.needed_bytes
    assert not planned.budget.sentence.startswith("fits")
    shown = printed(planned)
    assert f"Budget here {run.budget.sentence}" in shown
    assert f"Budget in pods {planned.budget.sentence}" in shown
    # With one worker there is one answer.
    alone = estimate_job(tight, grid=GridShape())
    assert alone.budget is not None
    assert alone.budget_here is None
    assert f"Budget {alone.budget.sentence}" in printed(alone)


def printed(estimate: Estimate) -> str:
    """What the command shows of an estimate, with single spaces."""
    text = StringIO()
    print_estimate(Console(file=text, width=1000), estimate, all_files=False)
    return " ".join(text.getvalue().split())


def test_as_many_columns_of_hidden_tensors_are_in_memory_as_fit(tmp_path: Path) -> None:
    """Where layers are wider than the features and the result."""
    storage = open_storage(None)
    options = SynthOptions(nodes=1 << 15, edges=1 << 16, width=16, hidden=1024, out=16, layers=3)
    synthesize(storage, tmp_path.as_uri(), options)
    job = load_manifest(tmp_path / "job.yaml")
    inputs, program = list_inputs(storage, job), read_model(storage, job.spec.model.uri)
    needs = estimate_program(program, job, inputs, GridShape(), panel=512)
    memory = f"{worker_bytes(needs.peak_memory_per_worker_bytes) // (1 << 20) + 1}MiB"
    planned = estimate_within(program, with_memory(job, memory), inputs, GridShape())
    assert planned.spill is not None
    assert planned.spill.panel == 512
