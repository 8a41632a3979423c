"""The model: rank 0 reads and compiles it, and sends it to all ranks, so all have the same."""

from __future__ import annotations

import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.matching import read_job_model
from embertide.errors import InputChanged
from embertide.graph.exchange import Channel
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


def broadcast_files(channel: Channel, files: dict[str, bytes]) -> dict[str, bytes]:
    """Rank 0's files, on every rank. Collective: every rank must call.

    Each rank but rank 0 receives all bytes once, and sends them to at most two others.

    Args:
        channel: of the world axis.
        files: name -> content; of rank 0, others' are not looked at.
    """
    own = [[name, len(content)] for name, content in files.items()]
    listed, *_ = channel.exchange.all_objects(own if channel.axis.index == 0 else [])
    if channel.axis.size == 1:
        return files
    sizes = [size for _, size in listed]
    if channel.axis.index == 0:
        data = torch.frombuffer(
            bytearray(b"".join(files.values())) or bytearray(1), dtype=torch.uint8
        )
        data = data[: sum(sizes)]
    else:
        data = torch.empty(sum(sizes), dtype=torch.uint8)
    _pass_on(channel, data)
    if channel.axis.index == 0:
        return files
    contents = (part.numpy().tobytes() for part in data.split(sizes))
    return {name: content for (name, _), content in zip(listed, contents, strict=True)}


def _pass_on(channel: Channel, data: torch.Tensor) -> None:
    """Receive from the rank above in the tree, then send to those below."""
    index = channel.axis.index
    if index:
        channel.start([], [((index - 1) // 2, data)]).wait()
    below = [peer for peer in (2 * index + 1, 2 * index + 2) if peer < channel.axis.size]
    channel.start([(peer, data) for peer in below], []).wait()
