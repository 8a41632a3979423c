"""Where a run keeps its layers for a next attempt or the next run, and when they go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

from embertide.context import RunContext
from embertide.engine.pipeline.graph_keeping import GraphKeeping
from embertide.engine.pipeline.kept_graph import on_one_machine
from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.pipeline.refresh import (
    RefreshPlan,
    find_unchanged,
    plan_refresh,
)
from embertide.engine.planning.base_version import kept_key, touched
from embertide.engine.planning.order import WorkOrder
from embertide.engine.stages.infer import Keeping, Request
from embertide.engine.stages.infer.restoring import NOT_USED
from embertide.errors import EmbertideError
from embertide.facts.telemetry.clock import Clock
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.places import key_uri
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.sweeping import (
    GIVEN_BACK,
    give_back,
    has_seals,
    keys,
    seals_of,
    sweep,
)
from embertide.spec.schemes import is_local
from embertide.spec.version_names import begun

NOT_SWEPT = "kept layers are not removed, since the current version cannot be read: {why}"


@contextmanager
def going_on(
    prepared: Prepared, order: WorkOrder, graph: GraphKeeping | None, clock: Clock
) -> Iterator[Request]:
    """What a run wants, what is there of the current version or a failed attempt, and where its
    own layers are kept. The body computes and publishes. Collective: every rank must call.

    Args:
        graph: is kept, too, and let go of where it was read.
    """
    ctx, layers = prepared.ctx, prepared.plan.program.layers
    with clock.stage("csr"):
        refresh = plan_refresh(prepared, order)
        if graph is not None and (refresh.keeps or order.keep):
            graph.keep(ctx, prepared.graph, store_of(ctx, order, refresh))
        if graph is not None:
            graph.kept.release()
    with _kept_layers(ctx, order, refresh, layers) as keeping:
        with clock.stage("csr"):
            base = find_unchanged(prepared, order, refresh)
        yield Request(chosen=prepared.chosen, base=base, keeping=keeping)


@contextmanager
def _kept_layers(
    ctx: RunContext, order: WorkOrder, refresh: RefreshPlan, layers: int
) -> Iterator[Keeping | None]:
    """Where layers are kept, below the output; None where none is.

    The body publishes. Where it ends in an error the layers stay, for the next attempt, if one may
    resume. Else those of the current version stay, for the next run, and of this version, if it
    keeps them.

    Args:
        layers: of the model.
    """
    storage, output, base = ctx.storage, ctx.job.spec.published_uri, refresh.base
    with (
        Attempt(storage, output, refresh.key, order.version) as attempt,
        Attempt(storage, output, base.key or refresh.key, order.version) as reading,
    ):
        if ctx.grid.rank == 0 and refresh.goes_on:
            reading.begin()
        targets = ctx.job.spec.inference.targets
        # What is computed for some nodes has no rows that another attempt could go on from.
        resume = targets is None and ctx.job.spec.refresh.resume != "never"
        if not (resume or refresh.keeps or refresh.goes_on):
            yield None
        else:
            uris = [item["uri"] for item in order.inputs.of_layers()]
            store = store_of(ctx, order, refresh)
            if ctx.grid.rank == 0 and refresh.keeps:
                _drop_touched(ctx, store, uris)
            keeping = Keeping(
                store,
                range(1, layers + 1) if refresh.keeps else order.keep if resume else (),
                results=refresh.keeps,
                # What a version was published with is as good as it, and is computed again.
                reads=resume and refresh.key != base.key,
                begins=attempt.begin,
                touched=lambda version: touched(storage, version, uris),
                how=refresh.record,
            )
            try:
                yield keeping
            except Exception:
                if ctx.grid.rank == 0 and not resume and refresh.key != base.key:
                    others = set(keys(storage, output)) - {refresh.key}
                    give_back(storage, output, order.version, others)
                raise
    if ctx.grid.rank == 0:
        note_given_back(ctx, refresh.key)
        if refresh.keeps and ctx.graph_facts.refresh.keeps is None:
            ctx.graph_facts.kept.none()
        _sweep(ctx, refresh)


def kept_rows_yield(
    ctx: RunContext, order: WorkOrder, graph: GraphKeeping | None = None
) -> AbstractContextManager[None]:
    """While the block writes a version, a disk that is full gets back the room of all kept layers.

    Nothing may read or write them for this run any more, once what is kept of a graph is sealed.
    """
    if graph is not None:
        graph.finish(ctx)
    output = ctx.job.spec.output.uri
    give = partial(give_back, ctx.storage, output, order.version)
    return ctx.storage.making_room(output, give)


def note_given_back(ctx: RunContext, key: str) -> None:
    """Say so where what a run has kept had to make room; rank 0 calls.

    Args:
        key: of the run's layers.
    """
    facts, output = ctx.graph_facts, ctx.job.spec.published_uri
    if not is_local(output) or not (facts.kept.kept_bytes or facts.kept.graph_bytes):
        return
    with suppress(EmbertideError):
        if not has_seals(ctx.storage, output, key):
            facts.kept.none()
            facts.refresh.keeps = None
            facts.kept.warn(f"{GIVEN_BACK}: {key_uri(output, key)}")


def store_of(ctx: RunContext, order: WorkOrder, refresh: RefreshPlan) -> LayerStore:
    """Where a run keeps what it keeps."""
    output = ctx.job.spec.published_uri
    return LayerStore(ctx.storage, output, refresh.key, order.version, on_one_machine(ctx))


def _drop_touched(ctx: RunContext, store: LayerStore, uris: list[str]) -> None:
    """Let go of what was kept under the run's key before a file was touched: the version would have
    rows of the file as it was then, since a layer that is complete is not kept again."""
    try:
        every = seals_of(ctx.storage, store.output_uri, store.key)
        # A graph is compared with the objects of its own edges.
        seals = [seal for seal in every if seal.edges is None]
        since = min((seal.version for seal in seals), key=begun, default="")
        if since and (change := touched(ctx.storage, since, uris)):
            ctx.graph_facts.kept.warn(NOT_USED.format(why=change))
            for seal in seals:
                store.drop(seal.name)
    except EmbertideError as error:
        ctx.graph_facts.kept.warn(NOT_USED.format(why=error))


def _sweep(ctx: RunContext, refresh: RefreshPlan) -> None:
    """Remove the layers that no run goes on from any more."""
    storage, output = ctx.storage, ctx.job.spec.published_uri
    try:
        current = kept_key(storage, output)
    except EmbertideError as error:
        ctx.graph_facts.kept.warn(NOT_SWEPT.format(why=error))
        return
    stay = {current, *([refresh.key] if ctx.graph_facts.refresh.keeps else [])}
    sweep(storage, output, {refresh.key, refresh.base.key} - stay, stay)
