"""The tables that `run` and `plan` end with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from embertide.cli.drawing import escaped, new_table, print_facts, print_line
from embertide.facts.telemetry.comparison import COMPARED
from embertide.facts.telemetry.estimate import Estimate, GridNeeds, InputSize
from embertide.facts.telemetry.format import human_bytes, human_count, human_seconds
from embertide.facts.telemetry.report import (
    PlannedTraffic,
    RankMemory,
    RelationCount,
    RunReport,
    Traffic,
    TypeCount,
)
from embertide.facts.telemetry.self_check import CHECKED
from embertide.spec.relations import Relation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Objects of one kind that are listed before the rest is summed up.
_LISTED = 5
_MINUTE = 60.0


def print_report(console: Console, report: RunReport) -> None:
    """What a run did: the version, stage seconds, traffic, memory against plan."""
    if report.confirmed:
        _print_confirmed(console, report)
        return
    passed = "[bold yellow]Not current[/]"
    done = "[bold green]Published[/]" if report.current else passed
    done = "[bold yellow]Held[/]" if report.held else done
    print_line(console, f"{done} {report.version}")
    print_line(console, f"  {escaped(report.uri)}")
    did = (
        f"{report.rows:,} embeddings of width {report.dim} from {report.nodes:,} nodes and"
        f" {report.edges:,} edges on a {report.grid} grid in {human_seconds(report.total_seconds)}"
        f"{_after_start(report)}"
    )
    back = " (a kept graph's too)" if report.kept.graph else ""
    speed = (
        f"ingest {human_count(report.ingest_edges_per_second)} edges/s{back},"
        f" inference {human_count(report.infer_edges_per_second)} edges/s"
    )
    kernels = [f"kernels: {report.kernels}"] if report.kernels else []
    facts = [
        did,
        *report.chosen.sentences,
        *report.kept.sentences,
        *report.refresh.sentences,
        speed,
        *kernels,
        *_checked(report),
        *_changes(report),
    ]
    print_facts(console, [("", fact) for fact in facts])
    _print_types(console, report.types, report.relations)
    console.print(_stage_table(report))
    if report.traffic:
        console.print(_traffic_table(report.traffic))
    if report.memory:
        console.print(_memory_table(report.memory))
    _print_warnings(console, report)


def _print_warnings(console: Console, report: RunReport) -> None:
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escaped(warning)}", highlight=False)


def _print_confirmed(console: Console, report: RunReport) -> None:
    """State that the current version is up to date, and how to compute it anyway."""
    print_line(console, f"[bold green]Unchanged[/] {report.version}")
    print_line(console, f"  {escaped(report.uri)}")
    why = (
        f"{report.rows:,} embeddings of width {report.dim} from the same inputs, model and job;"
        " nothing was computed (--force computes a version)"
    )
    print_facts(console, [("", why)])
    _print_warnings(console, report)


def _checked(report: RunReport) -> list[str]:
    """How far rows are from those computed a second time."""
    check = report.self_check
    if check is None or check.state != CHECKED:
        return []
    error = max(check.largest_errors.values(), default=0.0)
    return [f"{check.rows:,} rows computed a second time agree, largest error {error:.1e}"]


def _changes(report: RunReport) -> list[str]:
    """A line for each node type that was compared with the version before."""
    comparison = report.comparison
    if comparison is None or comparison.state != COMPARED:
        return []
    return list(map(escaped, comparison.sentences))


def _after_start(report: RunReport) -> str:
    """The user waited for the start, too."""
    if not report.start_seconds:
        return ""
    return f", after {human_seconds(report.start_seconds)} to start"


def print_estimate(console: Console, estimate: Estimate, all_files: bool) -> None:
    """What a job will read, hold and move."""
    console.print(_input_table(estimate.inputs, all_files))
    print_facts(console, _facts(estimate))
    if estimate.output_uri:
        print_line(console, f"        {escaped(estimate.output_uri)}")
    _print_types(console, estimate.types, estimate.relations)
    if estimate.grids:
        console.print(_grids_table(estimate.grids))
    console.print(_planned_memory_table(estimate))
    if estimate.traffic:
        console.print(_planned_traffic_table(estimate))
    for note in estimate.notes:
        console.print(f"[dim]note:[/] {escaped(note)}", highlight=False)
    if estimate.output_problem:
        console.print("[bold red]The output cannot be written.[/]")


def _print_types(
    console: Console, types: Sequence[TypeCount], relations: Sequence[RelationCount]
) -> None:
    """A line for each node type and relation, where there are several of either."""
    if len(types) <= 1 and len(relations) <= 1:
        return
    table = new_table("Node types", ["type"], ["nodes", "features", "embeddings"])
    for node_type in types:
        table.add_row(
            escaped(node_type.name),
            f"{node_type.nodes:,}",
            _wide(node_type.width),
            _wide(node_type.output_width),
        )
    console.print(table)
    table = new_table("Relations", ["from", "relation", "to"], ["edges"])
    for edges in relations:
        relation = Relation.parse(edges.name)
        words = (relation.source, relation.name, relation.destination)
        table.add_row(*map(escaped, words), _about(edges.edges, edges.exact))
    console.print(table)


def _wide(width: int) -> str:
    return f"{width:,}" if width else "-"


def _facts(estimate: Estimate) -> list[tuple[str, str]]:
    """The graph and the grid, then what a run needs, with its basis."""
    grid, needs = estimate.grid, estimate.needs
    facts = [
        (
            "Graph",
            f"{_about(estimate.nodes, estimate.nodes_exact)} nodes,"
            f" {_about(estimate.edges, estimate.edges_exact)} edges,"
            f" features of width {estimate.width}",
        ),
        (
            "Grid",
            f"{grid}: {_some(grid.workers, 'worker')}, {_some(grid.graph, 'graph partition')}"
            f" times {_some(grid.feature, 'feature partition')}",
        ),
    ]
    if needs is not None:
        text = (
            f"{human_bytes(needs.worker_bytes)} a worker with imports, which workers share in part:"
            f" {human_bytes(needs.machine_bytes)} for all on one machine;"
            f" {human_bytes(needs.container_bytes)} to ask for each container"
        )
        facts.append(("Memory", text))
    if estimate.budget_here is not None:
        facts.append(("Budget here", escaped(estimate.budget_here.sentence)))
    if estimate.budget is not None:
        where = "Budget" if estimate.budget_here is None else "Budget in pods"
        facts.append((where, escaped(estimate.budget.sentence)))
    if estimate.device_budget is not None:
        facts.append(("GPU", escaped(estimate.device_budget.sentence)))
    if estimate.seconds is not None and estimate.start_seconds is not None:
        facts.append(("Time", _time(estimate.start_seconds, estimate.seconds)))
        facts.append(("", escaped(estimate.seconds_basis)))
    if estimate.output_uri:
        text = (
            f"about {human_bytes(estimate.output_bytes)}: {estimate.nodes:,} embeddings of width"
            f" {estimate.output_width}, below"
        )
        facts.append(("Output", text))
    return facts


def _time(start: tuple[float, float], work: tuple[float, float]) -> str:
    whole = start[0] + work[0], start[1] + work[1]
    return (
        f"about {_range(whole)} on this machine: {_range(start)} to start, {_range(work)} of work"
    )


def _range(seconds: tuple[float, float]) -> str:
    low, high = seconds
    if high < _MINUTE:
        return f"{low:.0f} to {high:.0f} s"
    return f"{human_seconds(low)} to {human_seconds(high)}"


def _grids_table(grids: Iterable[GridNeeds]) -> Table:
    """The chosen one is marked; memory is with imports."""
    numbers = ["worker", "container", "exchanged", "work s"]
    table = new_table("Grids, * the chosen one", ["", "grid"], numbers)
    for needs in grids:
        seconds = "-" if needs.seconds is None else "{:.0f}-{:.0f}".format(*needs.seconds)
        table.add_row(
            "*" if needs.chosen else "",
            str(needs.grid),
            human_bytes(needs.worker_bytes),
            human_bytes(needs.container_bytes),
            human_bytes(needs.traffic_total_bytes),
            seconds,
            style="bold" if needs.chosen else None,
        )
    return table


def _stage_table(report: RunReport) -> Table:
    table = new_table("Stages", ["stage"], ["seconds", "share"])
    total = report.total_seconds or 1.0
    for stage, seconds in report.stages.items():
        table.add_row(stage, f"{seconds:.2f}", f"{seconds / total:.0%}")
    table.add_row("total", f"{report.total_seconds:.2f}", "", style="bold")
    return table


def _traffic_table(traffic: Sequence[Traffic]) -> Table:
    """Summed over layers; --json has them all."""
    # What is sent is received, so one of the two is enough on a terminal.
    in_place = any(item.bytes_read_in_place for item in traffic)
    numbers = ["bytes", *(["in place"] if in_place else []), "messages", "wait s", "compute s"]
    table = new_table("Moved by axis and primitive, all workers", ["axis, primitive"], numbers)
    sums: dict[tuple[str, str], list[float]] = {}
    for item in traffic:
        row = sums.setdefault((item.axis, item.primitive), [0, 0, 0, 0.0, 0.0])
        row[0] += item.bytes_sent
        row[1] += item.bytes_read_in_place
        row[2] += item.messages
        row[3] += item.wait_seconds
        row[4] += item.compute_seconds
    for (axis, primitive), (sent, read, messages, wait, compute) in sorted(sums.items()):
        table.add_row(
            f"{axis} {primitive}",
            human_bytes(sent),
            *([human_bytes(read)] if in_place else []),
            f"{messages:,.0f}",
            f"{wait:.2f}",
            f"{compute:.2f}",
        )
    return table


def _memory_table(memory: Iterable[RankMemory]) -> Table:
    numbers = ["imports", "peak beyond them", "planned", "of plan"]
    table = new_table("Memory per worker", ["rank"], numbers)
    for item in memory:
        share = f"{item.used_bytes / item.planned_bytes:.0%}" if item.planned_bytes else "-"
        table.add_row(
            str(item.rank),
            human_bytes(item.baseline_bytes),
            human_bytes(item.used_bytes),
            human_bytes(item.planned_bytes),
            share,
        )
    return table


def _input_table(inputs: Sequence[InputSize], all_files: bool) -> Table:
    table = new_table("Inputs", ["kind", "object"], ["size"])
    for kind in dict.fromkeys(item.kind for item in inputs):
        items = [item for item in inputs if item.kind == kind]
        shown = items if all_files or len(items) <= _LISTED else items[: _LISTED - 1]
        for item in shown:
            table.add_row(kind, escaped(item.uri), human_bytes(item.size))
        rest = items[len(shown) :]
        if rest:
            size = human_bytes(sum(item.size for item in rest))
            table.add_row(kind, f"{len(rest)} more (--files lists them)", size, style="dim")
    table.add_row("total", f"{len(inputs)} objects", _total(inputs), style="bold")
    return table


def _total(inputs: Iterable[InputSize]) -> str:
    return human_bytes(sum(item.size for item in inputs))


def _planned_memory_table(estimate: Estimate) -> Table:
    table = new_table("Memory per worker beyond its imports", ["stage"], ["bytes"])
    for stage, size in estimate.memory_per_worker_bytes.items():
        table.add_row(stage, human_bytes(size))
    table.add_row("peak", human_bytes(estimate.peak_memory_per_worker_bytes), style="bold")
    if estimate.gpu_memory_per_worker_bytes:
        table.add_row("pinned, of these", human_bytes(estimate.pinned_bytes))
        table.add_row("on the GPU", human_bytes(estimate.gpu_memory_per_worker_bytes))
    return table


def _planned_traffic_table(estimate: Estimate) -> Table:
    named = any(item.relation for item in estimate.traffic)
    words = ["axis", "primitive", "layer", *(["relation"] if named else [])]
    table = new_table("Bytes sent, of each worker", words, ["bytes", "messages"])
    for item in estimate.traffic:
        names = [*_traffic_words(item), escaped(item.relation)][: len(words)]
        fewest = "" if item.fewest_messages is None else f"{item.fewest_messages:,} to "
        messages = f"{fewest}{item.messages:,}"
        table.add_row(*names, human_bytes(item.bytes_per_worker), messages)
    total = human_bytes(estimate.traffic_total_bytes)
    table.add_row("all workers together", *[""] * (len(words) - 1), total, "", style="bold")
    return table


def _traffic_words(item: PlannedTraffic) -> list[str]:
    return [item.axis, item.primitive, "-" if item.layer < 0 else str(item.layer)]


def _about(count: int, exact: bool) -> str:
    return f"{count:,}" if exact else f"about {count:,}"


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
