"""A run from start to end, as every rank executes it: prepare, compute, publish.

==============  ===========================================================================
module          what it does
==============  ===========================================================================
prepare         features -> ids -> edges -> row ranges -> CSR: the inputs become a typed graph
typed_graph     the steps of it, node type by node type and relation by relation
compute         CSR -> layer graphs -> layers -> embeddings, and their self-check
refresh         the current version's kept rows, from which a run may go on, and what has changed
reach           how far changes reach, and what computing them again takes
keeping         what a run goes on from, and layers that are kept for another one
kept_graph      a graph that was kept: edges that have not changed are not read
publish         embeddings -> parts -> version
embed           some nodes' embeddings, in this process; publishes nothing (``embertide embed``),
                also over the rows that the current version has kept (``--over-kept``)
==============  ===========================================================================

A check prepares once and computes any number of programs; it publishes nothing.
"""

from __future__ import annotations

from functools import partial

from embertide.context import RunContext
from embertide.engine.pipeline.compute import SelfChecking, compute
from embertide.engine.pipeline.graph_keeping import graph_keeping
from embertide.engine.pipeline.keeping import going_on, kept_rows_yield
from embertide.engine.pipeline.prepare import Reading, prepare
from embertide.engine.pipeline.publish import publish
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
    model = partial(share_model, inputs=order.inputs, planned_digest=order.model_digest)
    keeps_rows = ctx.job.spec.refresh.keep and not order.no_room
    with clock.memory, graph_keeping(ctx, order.version, keeps_rows=keeps_rows) as graph:
        reading = Reading(model=model, targets=True, kept=None if graph is None else graph.kept)
        prepared = prepare(ctx, order.inputs, clock, reading)
        make_room()
        check = SelfChecking(prepared, order.version)
        with going_on(prepared, order, graph, clock) as request:
            # Few rows are likely to be computed over kept ones, of whatever was planned for.
            room = make_room if request.base is None else release_idle
            embeddings = compute(prepared, clock, request, checker=check, make_room=room)
            checked = check.finish(embeddings)
            release_idle()
            release_memory()
            with kept_rows_yield(ctx, order, graph):
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
