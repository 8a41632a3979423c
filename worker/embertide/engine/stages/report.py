"""The run's report: every rank's seconds, memory and traffic, gathered and kept by rank 0."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.order import WorkOrder
from embertide.facts.report import draw_page
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.format import human_bytes
from embertide.facts.telemetry.graph_facts import GraphFacts
from embertide.facts.telemetry.recorder import CountingRecorder, Key, Totals, sum_traffic
from embertide.facts.telemetry.report import (
    LayerFacts,
    RankMemory,
    RunFacts,
    RunReport,
    Span,
    TypeCount,
    WorkerReport,
)
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.facts.telemetry.transfers import TransferStats
from embertide.io.versions.catalog import VersionInfo
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.run_reports import write_report
from embertide.kernels.describe import describe
from embertide.plain import Plain
from embertide.program.steps import Program

NOT_CURRENT = (
    "the version is published but not current: {why}; `embertide versions` lists both, `embertide"
    " rollback` switches"
)
HELD = (
    "the version is complete but held, so that readers keep the one before: {why}. `embertide"
    " release` makes it current, `embertide discard` removes it; the next run goes on as usual"
)
NOT_KEPT = "the version is published, but the report of its run could not be kept beside it: {}"


BEYOND_PLAN = 1.25
"""Times its plan, from which on a worker's memory is a warning: a container has that much room."""
MEMORY_BEYOND_PLAN = (
    "{workers} took more memory than planned: worker {rank} took {used} beyond its imports, {share}"
    " of the {planned} that were planned; in a container that was sized by the plan a larger graph"
    " may run out of memory: ask for more, and report this"
)


@dataclass(frozen=True, kw_only=True)
class _Share(Plain):
    """What one rank tells rank 0; ``seconds`` are of its stages."""

    seconds: dict[str, float]
    memory: RankMemory
    totals: dict[Key, Totals]
    storage: TransferStats
    worker: WorkerReport

    def to_json(self) -> dict[str, Any]:
        """Plain values; the totals' keys become part of each."""
        totals = [[*key, asdict(value)] for key, value in self.totals.items()]
        return {**super().to_json(), "totals": totals}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` described."""
        totals = {(axis, name, at, of): item for axis, name, at, of, item in data["totals"]}
        return super().from_json({**data, "totals": totals})


def run_facts(
    ctx: RunContext, library: str, layer_names: tuple[str, ...], program: Program
) -> RunFacts:
    """The model and the settings that a run computes with."""
    inference = ctx.job.spec.inference
    layers = zip(layer_names, program.outputs, strict=True)
    return RunFacts(
        library=library,
        input_width=max(program.widths[name] for name in program.inputs.values()),
        parameters=sum(values.numel() for values in program.params.values()),
        layers=[LayerFacts(name, program.widths[out]) for name, out in layers],
        graph_layers=program.layers,
        device=ctx.device.type,
        threads=ctx.threads,
        cores=os.cpu_count() or 1,
        group_bytes=inference.group_bytes,
        depth=inference.depth,
        row_type=inference.rows,
    )


def type_counts(
    inputs: Inputs, counts: dict[str, int], program: Program, names: dict[str, str]
) -> list[TypeCount]:
    """What each node type that was read has and gets.

    Args:
        counts: node type -> how many nodes.
        names: the program's name of a type -> the manifest's.
    """
    widths = {names[name]: width for name, width in program.result_widths.items()}
    return [
        TypeCount(name, count, inputs.by_nodes[name].width, widths.get(name, 0))
        for name, count in counts.items()
    ]


def gather_report(
    ctx: RunContext,
    order: WorkOrder,
    facts: RunFacts,
    clock: Clock,
    recorder: CountingRecorder,
    published: VersionInfo | None,
    warnings: list[str],
    comparison: Comparison | None,
    checked: SelfCheck,
) -> RunReport | None:
    """The report of all ranks, on rank 0. Collective: every rank must call.

    Args:
        published: on rank 0; None on the others.
        warnings: of the run, for its user.
        comparison: with the version before, on rank 0.
        checked: what computing rows of the layers a second time gave.
    """
    mine = _Share(
        seconds=clock.seconds,
        memory=clock.rank_memory(ctx.grid.rank, order.planned_bytes),
        totals=recorder.totals,
        storage=ctx.storage.stats.copy(),
        worker=_worker(ctx, clock),
    )
    # All leave it at the same moment, by which their clocks are aligned.
    ctx.exchange.barrier()
    everything = ctx.exchange.all_objects((mine.to_json(), clock.elapsed))
    if published is None:
        return None
    gathered = [(_Share.from_json(share), elapsed) for share, elapsed in everything]
    shares = [share for share, _ in gathered]
    longest = max(elapsed for _, elapsed in gathered)
    stored = TransferStats()
    for share in shares:
        stored.add(share.storage)
    # Ranks work side by side, so the slowest counts.
    stages = {name: max(share.seconds.get(name, 0.0) for share in shares) for name in clock.seconds}
    graph = ctx.graph_facts
    memory = [share.memory for share in shares]
    return RunReport(
        version=order.version,
        uri=published.uri,
        rows=published.rows,
        dim=published.dim,
        manifest_digest=published.manifest_digest,
        grid=ctx.grid.shape,
        nodes=graph.nodes,
        edges=graph.edges,
        stages=stages,
        total_seconds=clock.elapsed,
        start_seconds=max(0.0, time.time() - clock.elapsed - order.began) if order.began else 0.0,
        ingest_edges_per_second=graph.edges / max(1e-9, stages["ingest"] + stages["csr"]),
        infer_edges_per_second=_edges_done(graph, facts) / max(1e-9, stages["infer"]),
        traffic=sum_traffic([share.totals for share in shares]),
        memory=memory,
        warnings=[
            *graph.omissions.sentences,
            *graph.kept.problems,
            *warnings,
            *beyond_plan(memory),
            *_not_current(published),
            *filter(None, [published.not_removed, published.clock]),
        ],
        current=published.current,
        not_removed=published.not_removed,
        not_current=published.not_current,
        comparison=comparison,
        self_check=checked,
        held=list(published.held),
        kernels=describe(ctx.device),
        workers=[_later(share.worker, longest - elapsed) for share, elapsed in gathered],
        planned_memory=order.planned_memory,
        budget=order.budget,
        planned_traffic=order.planned_traffic,
        storage=stored,
        facts=facts,
        types=graph.types,
        relations=graph.relations,
        began=time.time() - longest,
        omissions=graph.omissions,
        kept=graph.kept,
        refresh=graph.refresh,
        chosen=graph.chosen,
    )


def _edges_done(graph: GraphFacts, facts: RunFacts) -> int:
    """Edges that the layers went over."""
    if graph.chosen.rows and not graph.chosen.why:
        return graph.chosen.edges
    return graph.edges * (facts.graph_layers - graph.kept.resumed)


def _not_current(published: VersionInfo) -> list[str]:
    """A warning where readers do not get the version."""
    if published.held:
        return [HELD.format(why="; ".join(published.held))]
    return [] if published.current else [NOT_CURRENT.format(why=published.not_current)]


def beyond_plan(memory: list[RankMemory]) -> list[str]:
    """A warning where workers took clearly more memory than was planned; it names the fullest."""
    over = [item for item in memory if item.used_bytes > item.planned_bytes * BEYOND_PLAN]
    if not over or not over[0].planned_bytes:
        return []
    fullest = max(over, key=lambda item: item.used_bytes)
    return [
        MEMORY_BEYOND_PLAN.format(
            workers=f"{len(over)} of {len(memory)} workers",
            rank=fullest.rank,
            used=human_bytes(fullest.used_bytes),
            planned=human_bytes(fullest.planned_bytes),
            share=f"{fullest.used_bytes / fullest.planned_bytes:.0%}",
        )
    ]


def _worker(ctx: RunContext, clock: Clock) -> WorkerReport:
    """What this rank did, by its own clock."""
    moved, scratch = clock.recorder.moved(), ctx.scratch
    staged = scratch is not None and ctx.device.type != "cpu"
    sent: defaultdict[str, int] = defaultdict(int)
    for (axis, *_), entry in clock.recorder.totals.items():
        sent[axis] += entry.bytes_sent
    return WorkerReport(
        rank=ctx.grid.rank,
        nodes=ctx.graph_facts.own_nodes,
        edges=ctx.graph_facts.own_edges,
        bytes_sent=moved.bytes_sent,
        bytes_received=moved.bytes_received,
        wait_seconds=moved.wait_seconds,
        compute_seconds=moved.compute_seconds,
        peers_on_host=len(ctx.exchange.links),
        spans=sorted(clock.spans, key=lambda span: (span.start, -span.end)),
        sent_by_axis=dict(sent),
        bytes_read_in_place=moved.bytes_read_in_place,
        scratch_bytes_written=int(scratch.written) if scratch and not staged else 0,
        scratch_bytes_read=int(scratch.read) if scratch and not staged else 0,
        scratch_peak_bytes=int(scratch.most) if scratch and not staged else 0,
    )


def _later(worker: WorkerReport, seconds: float) -> WorkerReport:
    """The same by the clock of the rank that began first, which began that much earlier."""
    return replace(worker, spans=[_shifted(span, seconds) for span in worker.spans])


def _shifted(span: Span, seconds: float) -> Span:
    return replace(span, start=span.start + seconds, end=span.end + seconds)


def keep_report(ctx: RunContext, report: RunReport) -> RunReport:
    """Write a run's report beside the version's manifest; rank 0 calls, when it has published.

    The version is there whatever happens here, so a report that cannot be drawn or written is a
    warning in the report that is returned.
    """
    output_uri = ctx.job.spec.published_uri
    try:
        manifest, _ = read_manifest(ctx.storage, output_uri, report.version)
        write_report(ctx.storage, output_uri, report, draw_page(report, manifest))
    except Exception as error:
        warning = NOT_KEPT.format(str(error) or repr(error))
        return replace(report, warnings=[*report.warnings, warning])
    return report
