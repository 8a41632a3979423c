"""The model is read and compiled by rank 0 alone; every rank gets the same program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.engine.stages.model import share_model
from embertide.errors import InputChanged
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph.exchange import Exchange
from embertide.io.storage.opening import open_storage
from embertide.models.compiled import compile_model, read_compiled
from embertide.models.read import read_files
from tests.support.ranks import on_grid
from tests.support.small_job import SmallJob
from tests.support.world import make_job

pytestmark = pytest.mark.distributed


def _share(exchange: Exchange, model: str, planned: str) -> tuple[Any, ...]:
    """Digest and parameters of the model on this rank, and what moved of it."""
    exchange.recorder = recorder = CountingRecorder()
    job = make_job()
    spec = job.spec.model_copy(update={"model": job.spec.model.model_copy(update={"uri": model})})
    # Nothing else may touch the store.
    storage: Any = open_storage(None) if exchange.grid.rank == 0 else None
    ctx = RunContext(job.model_copy(update={"spec": spec}), exchange, storage, lambda _: None)
    try:
        shared = share_model(ctx, Inputs({}, {}), planned)
    except InputChanged as error:
        return (str(error),)
    params = {name: values.tolist() for name, values in shared.program().params.items()}
    return shared.digest, params, recorder.moved().bytes_sent, recorder.moved().bytes_received


def test_rank_0_reads_the_model_for_all(tmp_path: Path) -> None:
    model = SmallJob.make(tmp_path).model
    storage = open_storage(None)
    size = sum(map(len, compile_model(read_files(storage, model.as_uri())).values()))
    answers = on_grid(5, 1, _share, model.as_uri(), "")
    digest, params, *_ = answers[0]
    assert all(answer[:2] == (digest, params) for answer in answers)
    # Along a binary tree: 0 sends to 1 and 2, and 1 to 3 and 4.
    assert [sent for _, _, sent, _ in answers] == [2 * size, 2 * size, 0, 0, 0]
    assert [received for *_, received in answers] == [0, size, size, size, size]


def test_a_compiled_model_is_what_it_was_compiled_from(tmp_path: Path) -> None:
    model = read_files(open_storage(None), SmallJob.make(tmp_path).model.as_uri())
    before, compiled = model.program(), read_compiled(compile_model(model))
    after = compiled.program()
    assert (after.steps, after.results, after.outputs) == (
        before.steps,
        before.results,
        before.outputs,
    )
    assert (after.digest, after.layers, after.inputs) == (
        before.digest,
        before.layers,
        before.inputs,
    )
    for name, values in after.params.items():
        assert torch.equal(values, before.params[name])
    facts = [(one.digest, one.library, one.layer_names) for one in (model, compiled)]
    assert facts[0] == facts[1]
    assert model.reference_tolerance == compiled.reference_tolerance


def test_another_model_than_the_run_was_planned_with_is_refused(tmp_path: Path) -> None:
    model = SmallJob.make(tmp_path).model
    ((text,),) = on_grid(1, 1, _share, model.as_uri(), "another digest")
    assert text.startswith(f"{model.as_uri()} changed after the run was planned with it")
