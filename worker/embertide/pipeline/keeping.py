"""Where a run keeps its layers for a next attempt, and when they go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from embertide.context import RunContext
from embertide.layers.attempts import Attempt
from embertide.layers.store import LayerStore
from embertide.layers.sweeping import sweep
from embertide.planning.layer_key import layer_key
from embertide.planning.order import WorkOrder
from embertide.planning.unchanged import touched
from embertide.stages.infer import Keeping


@contextmanager
def kept_layers(ctx: RunContext, order: WorkOrder) -> Iterator[Keeping | None]:
    """Where layers are kept, below the output; None where the job says never.

    The body publishes. Where it ends in an error the layers stay, for the next attempt; else they
    are removed.
    """
    storage, output = ctx.storage, ctx.job.spec.output.uri
    key = layer_key(ctx.job, order.inputs)
    with Attempt(storage, output, key, order.version) as attempt:
        if ctx.job.spec.refresh.resume == "never":
            yield None
        else:
            uris = [item["uri"] for item in order.inputs.objects()]
            yield Keeping(
                LayerStore(storage, output, key, order.version),
                order.keep,
                attempt.begin,
                lambda version: touched(storage, version, uris),
            )
    if ctx.grid.rank == 0:
        sweep(storage, output, key)
