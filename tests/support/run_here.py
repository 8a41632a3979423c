"""One rank's run in this process, without a launcher."""

from __future__ import annotations

import torch

from embertide.context import RunContext
from embertide.engine.pipeline import run
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.order import WorkOrder
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.io.storage.protocol import Storage
from embertide.models.read import read_files
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.version_names import new_version


def run_here(storage: Storage, job: EmbeddingJob) -> set[str]:
    """Run a job in this process; returns the URIs of what it depends on, as its list has them."""
    inputs = list_inputs(storage, job)
    recorder = CountingRecorder()
    exchange = Exchange(Grid(GridShape(), 0), torch.device("cpu"), recorder)
    ctx = RunContext(job, exchange, storage, lambda _event: None, threads=1)
    order = WorkOrder(inputs, new_version(), 1 << 30, model_digest=_digest(storage, job))
    assert (
        run(ctx, order, recorder, Clock(MemoryWatch(), lambda _event: None, recorder)) is not None
    )
    return {item["uri"] for item in inputs.objects()}


def _digest(storage: Storage, job: EmbeddingJob) -> str:
    return read_files(storage, job.spec.model.uri).digest
