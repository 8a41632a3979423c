"""A run's report, cut down to what the job's status keeps of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from embertide.facts.telemetry.comparison import COMPARED, Comparison, TypeComparison
from embertide.facts.telemetry.omissions import DroppedEdges, Omissions
from embertide.facts.telemetry.recorder import MOST_RELATIONS, OTHER
from embertide.facts.telemetry.report import PlannedTraffic, RelationCount, RunReport, Traffic
from embertide.facts.telemetry.self_check import CHECKED, SelfCheck
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import OutputReport
from embertide.spec.run_status import (
    MAX_ENTRIES,
    MAX_REASON,
    ComparisonReport,
    DroppedReport,
    ExchangeReport,
    LayerCheckReport,
    MemoryReport,
    MergedReport,
    RelationReport,
    RunStatus,
    SelfCheckReport,
    StageReport,
    StorageReport,
    TypeChanges,
    TypeOutput,
    TypeReport,
    WorkerTotals,
)

if TYPE_CHECKING:
    from embertide.io.versions.catalog import TypeInfo, VersionInfo

_LONGEST_WARNING = 1000
Pair = tuple[str, str]
"""Axis and primitive."""


def run_status(report: RunReport, attempt: int) -> RunStatus:
    """The report without its layers and ranks; lists are cut at 64 entries."""
    stages = [StageReport(name=n, seconds=_seconds(s)) for n, s in report.stages.items()]
    fullest = max(report.memory, key=lambda item: item.used_bytes)
    stored = report.storage
    return RunStatus(
        attempt=attempt,
        version=report.version,
        grid=str(report.grid),
        kernels=report.kernels[:256],
        seconds=_seconds(report.total_seconds),
        nodes=report.nodes,
        edges=report.edges,
        node_types=_node_types(report),
        relations=_relations(report.relations),
        **_omitted(report.omissions),
        resumed_layer=report.kept.resumed or None,
        kept_layers=report.kept.kept[:MAX_ENTRIES] or None,
        refreshed_rows=report.refresh.rows if report.refresh.mode == "incremental" else None,
        full_run=report.refresh.why[:MAX_REASON] or None,
        target_rows=report.chosen.rows or None,
        target_edges=report.chosen.edges if report.chosen.rows and not report.chosen.why else None,
        comparison=_compared(report.comparison),
        self_check=_checked(report.self_check),
        stages=stages[:MAX_ENTRIES],
        exchange=_exchange(report)[:MAX_ENTRIES],
        workers=_workers(report),
        memory=MemoryReport(
            peak_bytes=fullest.used_bytes,
            planned_bytes=fullest.planned_bytes,
            container_peak_bytes=max(item.container_peak_bytes for item in report.memory) or None,
        ),
        storage=StorageReport(
            read_bytes=stored.bytes_read,
            written_bytes=stored.bytes_written,
            requests=stored.requests,
            retries=stored.retries,
            errors=stored.errors,
        ),
    )


def output_report(
    info: VersionInfo | RunReport, job: EmbeddingJob, *, confirmed: bool = False
) -> OutputReport:
    """What a job's status has of its version.

    Args:
        confirmed: it is an earlier run's, from the same inputs and model.
    """
    return OutputReport(
        version=info.version,
        uri=info.uri,
        rows=info.rows,
        dim=info.dim,
        manifest_digest=info.manifest_digest,
        current=info.current,
        types=published_types(info) if len(job.spec.input.nodes) > 1 else None,
        not_removed=info.not_removed[:_LONGEST_WARNING] or None,
        confirmed=confirmed,
        held="; ".join(info.held)[:_LONGEST_WARNING] or None,
        not_current=info.not_current[:_LONGEST_WARNING] or None,
    )


def published_types(info: VersionInfo | RunReport) -> list[TypeOutput]:
    """Rows and width of the embeddings of each node type that was published; of several results the
    widest counts."""
    if isinstance(info, RunReport):
        return [
            TypeOutput(
                name=of_type.name,
                rows=info.chosen.rows or of_type.nodes,
                dim=of_type.output_width,
            )
            for of_type in info.types
            if of_type.output_width
        ]
    by_type: dict[str, list[TypeInfo]] = {}
    for label, result in info.types.items():
        by_type.setdefault(label.partition("/")[0], []).append(result)
    return [
        TypeOutput(name=name, rows=results[0].rows, dim=max(result.dim for result in results))
        for name, results in by_type.items()
    ]


def _node_types(report: RunReport) -> list[TypeReport] | None:
    """None for a graph of one node type, whose nodes the report has in total."""
    if len(report.types) <= 1:
        return None
    return [TypeReport(name=of_type.name, nodes=of_type.nodes) for of_type in report.types]


def _relations(counts: list[RelationCount]) -> list[RelationReport] | None:
    """The first 32, as in metrics, then the rest together; None for a single relation."""
    if len(counts) <= 1:
        return None
    own, rest = counts[:MOST_RELATIONS], counts[MOST_RELATIONS:]
    found = [RelationReport(name=count.name, edges=count.edges) for count in own]
    if rest:
        found.append(RelationReport(name=OTHER, edges=sum(count.edges for count in rest)))
    return found


def _compared(found: Comparison | None) -> ComparisonReport | None:
    """None where the version was compared with nothing."""
    if found is None or found.state != COMPARED:
        return None
    types = [_changes(of_type) for of_type in found.types if of_type.previous_rows is not None]
    return ComparisonReport(
        previous=found.previous,
        same_model=found.same_model,
        seconds=_seconds(found.seconds),
        types=types[:MAX_ENTRIES],
    )


def _changes(of_type: TypeComparison) -> TypeChanges:
    cosine, overlap, residual = of_type.cosine("5%"), of_type.overlap, of_type.residual
    return TypeChanges(
        name=of_type.name or None,
        rows=of_type.rows,
        new_rows=of_type.new_rows or 0,
        removed_rows=of_type.removed_rows or 0,
        changed_rows=of_type.changed_rows or 0,
        zero_rows=of_type.zero_rows,
        duplicate_rows=of_type.duplicate_rows,
        cosine=None if cosine is None else round(cosine, 6),
        overlap=None if overlap is None else round(overlap, 6),
        residual=None if residual is None else round(residual, 6),
    )


def _checked(found: SelfCheck | None) -> SelfCheckReport | None:
    """None where no rows were computed again."""
    if found is None or found.state != CHECKED:
        return None
    layers = [
        LayerCheckReport(layer=layer, rows=found.rows_of(layer), largest_error=error)
        for layer, error in found.largest_errors.items()
    ]
    return SelfCheckReport(
        seconds=_seconds(found.seconds),
        tolerance=found.tolerance,
        layers=layers[:MAX_ENTRIES],
        skipped=len(found.skipped),
    )


def _omitted(omissions: Omissions) -> dict[str, Any]:
    """What the run did without, None for what there is none of."""
    filled = [TypeReport(name=one.node_type, nodes=one.nodes) for one in omissions.filled_nodes]
    return {
        "dropped_edges": _dropped(omissions.dropped_edges),
        "empty_relations": list(omissions.empty_relations)[:MAX_ENTRIES] or None,
        "missing_days": sum(map(len, omissions.missing_days.values())) or None,
        "filled_nodes": filled or None,
        "merged_loops": [
            MergedReport(name=one.relation, nodes=one.nodes, first=one.first[:255])
            for one in omissions.merged_loops[:MAX_ENTRIES]
        ]
        or None,
    }


def _dropped(edges: list[DroppedEdges]) -> list[DroppedReport] | None:
    """The first 32 relations of which edges were left out, then the rest together."""
    own, rest = edges[:MOST_RELATIONS], edges[MOST_RELATIONS:]
    found = [DroppedReport(name=one.relation, edges=one.edges, rows=one.rows) for one in own]
    if rest:
        edges_of_rest, rows = (sum(one.edges for one in rest), sum(one.rows for one in rest))
        found.append(DroppedReport(name=OTHER, edges=edges_of_rest, rows=rows))
    return found or None


def _workers(report: RunReport) -> list[WorkerTotals] | None:
    """None where a status has no room for all: a part would be compared as if it were the whole."""
    if not 0 < len(report.workers) <= MAX_ENTRIES:
        return None
    memory = {item.rank: item for item in report.memory}
    return [
        WorkerTotals(
            rank=worker.rank,
            graph_bytes=worker.sent_by_axis.get("graph", 0),
            feature_bytes=worker.sent_by_axis.get("feature", 0),
            wait_seconds=_seconds(worker.wait_seconds),
            peak_bytes=memory[worker.rank].used_bytes,
            planned_bytes=memory[worker.rank].planned_bytes,
        )
        for worker in report.workers
    ]


def _exchange(report: RunReport) -> list[ExchangeReport]:
    """By axis and primitive; what was planned and never sent is left out."""
    traffic: defaultdict[Pair, list[Traffic]] = defaultdict(list)
    planned: defaultdict[Pair, list[PlannedTraffic]] = defaultdict(list)
    for item in report.traffic:
        traffic[item.axis, item.primitive].append(item)
    for plan in report.planned_traffic:
        planned[plan.axis, plan.primitive].append(plan)
    workers = report.grid.workers
    return [_entry(*pair, traffic[pair], planned.get(pair), workers) for pair in sorted(traffic)]


def _entry(
    axis: str,
    primitive: str,
    layers: list[Traffic],
    planned: list[PlannedTraffic] | None,
    workers: int,
) -> ExchangeReport:
    sent = messages = None
    if planned is not None:
        sent = workers * sum(plan.bytes_per_worker for plan in planned)
        messages = workers * sum(plan.messages for plan in planned)
    return ExchangeReport(
        axis=axis,
        primitive=primitive,
        bytes=sum(item.bytes_sent for item in layers),
        planned_bytes=sent,
        most_bytes=sum(item.most_bytes_sent for item in layers),
        messages=sum(item.messages for item in layers),
        planned_messages=messages,
        groups=sum(item.groups for item in layers),
        largest_group_bytes=max(item.largest_group_bytes for item in layers),
        depth=max(item.depth for item in layers),
        wait_seconds=_seconds(sum(item.wait_seconds for item in layers)),
        longest_wait_seconds=_seconds(sum(item.longest_wait_seconds for item in layers)),
        overlapped_seconds=_seconds(sum(item.compute_seconds for item in layers)),
    )


def _seconds(value: float) -> float:
    """To a tenth of a millisecond, so that a status is not full of digits."""
    return round(value, 4)
