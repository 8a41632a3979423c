"""The run's report: every rank's seconds, memory and traffic, gathered at rank 0."""

from __future__ import annotations

import time

from embertide.context import RunContext
from embertide.kernels import native
from embertide.models.program import Program
from embertide.planning.order import WorkOrder
from embertide.telemetry.clock import Clock
from embertide.telemetry.recorder import CountingRecorder, sum_traffic
from embertide.telemetry.report import RunReport
from embertide.telemetry.transfers import TransferStats
from embertide.versions.catalog import VersionInfo

NOT_CURRENT = (
    "the version is published but not current: while this run went on, a later run published or"
    " someone rolled back; `embertide versions` lists both, `embertide rollback` switches"
)


def gather_report(
    ctx: RunContext,
    order: WorkOrder,
    program: Program,
    clock: Clock,
    recorder: CountingRecorder,
    published: VersionInfo | None,
    warnings: list[str],
) -> RunReport | None:
    """The report of all ranks, on rank 0. Collective: every rank must call.

    Args:
        published: on rank 0; None on the others.
        warnings: of the run, for its user.
    """
    mine = clock.rank_memory(ctx.grid.rank, order.planned_bytes)
    transfers = ctx.storage.stats.copy()
    gathered = ctx.exchange.all_objects((clock.seconds, mine, recorder.totals, transfers))
    if published is None:
        return None
    s3 = TransferStats()
    for _, _, _, counted in gathered:
        s3.add(counted)
    # Ranks work side by side, so the slowest counts.
    stages = {
        name: max(seconds.get(name, 0.0) for seconds, *_ in gathered) for name in clock.seconds
    }
    edges = clock.edges
    return RunReport(
        version=order.version,
        uri=published.uri,
        rows=published.rows,
        dim=program.output_width,
        manifest_digest=published.manifest_digest,
        grid=ctx.grid.shape,
        nodes=clock.nodes,
        edges=edges,
        stages=stages,
        total_seconds=time.perf_counter() - clock.began,
        ingest_edges_per_second=edges / max(1e-9, stages["ingest"] + stages["csr"]),
        infer_edges_per_second=edges * program.layers / max(1e-9, stages["infer"]),
        traffic=sum_traffic([totals for _, _, totals, _ in gathered]),
        memory=[memory for _, memory, *_ in gathered],
        warnings=[*warnings, *([] if published.current else [NOT_CURRENT])],
        current=published.current,
        kernels=native.describe(),
        planned_traffic=order.planned_traffic,
        s3=s3,
    )
