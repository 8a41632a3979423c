"""A run from start to end, as every rank executes it: prepare, compute, publish.

==============  ===========================================================================
module          what it does
==============  ===========================================================================
prepare         features -> ids -> edges -> row ranges -> CSR: the inputs become a typed graph
typed_graph     the steps of it, node type by node type and relation by relation
compute         CSR -> layer graphs -> layers -> embeddings
refresh         the current version's kept rows, from which a run may go on
unchanged_rows  the rows that have not changed since
reach           how far changes reach, and what computing them again takes
keeping         layers that are kept for a next attempt or the next run
graph_keeping   the graph that is kept beside them
kept_graph      a graph that was kept: edges that have not changed are not read
self_check      rows of the layers a second time, and that they agree
publish         embeddings -> parts -> version
embed           some nodes' embeddings, in this process; publishes nothing (``embertide embed``)
over_kept       the same over the rows that the current version has kept (``--over-kept``)
near            the part of a graph that the edges of few nodes reach, and the features of it
==============  ===========================================================================

A check prepares once and computes any number of programs; it publishes nothing.
"""

from __future__ import annotations

from functools import partial

from embertide.context import RunContext
from embertide.engine.pipeline.compute import compute
from embertide.engine.pipeline.graph_keeping import graph_keeping
from embertide.engine.pipeline.keeping import kept_layers, kept_rows_yield, store_of
from embertide.engine.pipeline.prepare import prepare
from embertide.engine.pipeline.publish import publish
from embertide.engine.pipeline.refresh import plan_refresh
from embertide.engine.pipeline.self_check import SelfChecking
from embertide.engine.pipeline.unchanged_rows import find_unchanged
from embertide.engine.planning.order import WorkOrder
from embertide.engine.stages.model import share_model
from embertide.engine.stages.report import gather_report, keep_report
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import release_memory
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.facts.telemetry.report import RunReport
from embertide.kernels.memory import release_idle

_SMALL_TENSORS_BYTES = 48 << 20
"""The part of the layers' memory for tensors that are too small for pages that others left."""


def run(
    ctx: RunContext, order: WorkOrder, recorder: CountingRecorder, clock: Clock
) -> RunReport | None:
    """Compute and publish one version; rank 0 gets the report.

    Collective: every rank must call.

    Raises:
        EmbertideError: on the rank that found a problem, or on all.
    """
    make_room = partial(_make_room, clock, order)
    with clock.memory:
        read_model = partial(share_model, inputs=order.inputs, planned_digest=order.model_digest)
        with graph_keeping(ctx, order.version) as graph:
            prepared = prepare(
                ctx, order.inputs, clock, read_model, only_targets=True,
                kept=None if graph is None else graph.kept,
            )  # fmt: skip
            make_room()
            self_check = SelfChecking(prepared, order.version)
            with clock.stage("csr"):
                refresh = plan_refresh(prepared, order)
                if graph is not None and (refresh.keeps or order.keep):
                    graph.keep(prepared.ctx, prepared.graph, store_of(ctx, order, refresh))
                if graph is not None:
                    graph.kept.release()
            layers = prepared.plan.program.layers
            with kept_layers(ctx, order, refresh, layers) as keeping:
                with clock.stage("csr"):
                    refreshing = find_unchanged(prepared, order, refresh)
                embeddings = compute(
                    prepared, clock, make_room, checker=self_check, keeping=keeping,
                    refreshing=refreshing, chosen=prepared.chosen,
                )  # fmt: skip
                if graph is not None:
                    graph.finish(ctx)
                checked = self_check.finish(embeddings)
                release_idle()
                release_memory()
                with kept_rows_yield(ctx, order):
                    published = publish(prepared, order, embeddings, checked, clock)
    ctx = prepared.ctx
    report = gather_report(
        ctx,
        order,
        published.facts,
        clock,
        recorder,
        published.version,
        published.warnings,
        published.comparison,
        checked,
    )
    if report is None:
        return None
    with kept_rows_yield(ctx, order):
        return keep_report(ctx, report)


def _make_room(clock: Clock, order: WorkOrder) -> None:
    """Give back idle pages that the layers' tensors would not fill."""
    kept = order.planned_memory.get("infer", 0) - _SMALL_TENSORS_BYTES
    release_idle(max(0, clock.memory.used_bytes - kept))
