"""The model: rank 0 reads and compiles it, and sends it to all ranks, so all have the same."""

from __future__ import annotations

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.job_model import read_job_model
from embertide.errors import InputChanged
from embertide.graph.broadcast import broadcast_files
from embertide.models.compiled import compile_model, read_compiled
from embertide.models.read import Model


def share_model(ctx: RunContext, inputs: Inputs, planned_digest: str) -> Model:
    """Read and compile the job's model once for all ranks. Collective: every rank must call.

    Moves the bytes of the compiled model to each other rank, along a tree (label world,
    ``model``).

    Args:
        planned_digest: of the files that the run was planned with; "": unknown.

    Raises:
        ObjectMissing, ModelError: on rank 0; see :func:`embertide.models.read.read_model`.
        InputChanged: on rank 0; the files are not those that the run was planned with.
    """
    channel = ctx.exchange.channel("world", "model")
    files = _compiled(ctx, inputs, planned_digest) if ctx.grid.rank == 0 else {}
    return read_compiled(broadcast_files(channel, files))


def _compiled(ctx: RunContext, inputs: Inputs, planned_digest: str) -> dict[str, bytes]:
    model = read_job_model(ctx.storage, ctx.job, inputs)
    if planned_digest not in ("", model.digest):
        raise InputChanged(
            f"{ctx.job.spec.model.location} changed after the run was planned with it; run the job"
            " again when nothing writes to it"
        )
    return compile_model(model)
