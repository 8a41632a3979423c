"""The tables that `run` and `plan` end with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from embertide.cli.drawing import escaped, new_table, print_line
from embertide.cli.format import human_bytes, human_count, human_seconds
from embertide.telemetry.report import (
    Estimate,
    InputSize,
    PlannedTraffic,
    RankMemory,
    RunReport,
    Traffic,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Objects of one kind that are listed before the rest is summed up.
_LISTED = 5


def print_report(console: Console, report: RunReport) -> None:
    """What a run did: the version, stage seconds, traffic, memory against plan."""
    print_line(console, f"[bold green]Published[/] {report.version}")
    print_line(console, f"  {escaped(report.uri)}")
    print_line(
        console,
        f"  {report.rows:,} embeddings of width {report.dim} "
        f"from {report.nodes:,} nodes and {report.edges:,} edges "
        f"on a {report.grid} grid in {human_seconds(report.total_seconds)}",
    )
    print_line(
        console,
        f"  ingest {human_count(report.ingest_edges_per_second)} edges/s, "
        f"inference {human_count(report.infer_edges_per_second)} edges/s",
    )
    console.print(_stage_table(report))
    if report.traffic:
        console.print(_traffic_table(report.traffic))
    if report.memory:
        console.print(_memory_table(report.memory))
    for warning in report.warnings:
        print_line(console, f"[yellow]warning:[/] {escaped(warning)}")


def print_estimate(console: Console, estimate: Estimate, all_files: bool) -> None:
    """What a job will read, hold and move."""
    grid = estimate.grid
    console.print(_input_table(estimate.inputs, all_files))
    print_line(
        console,
        f"[bold]Graph[/]   {_about(estimate.nodes, estimate.nodes_exact)} nodes, "
        f"{_about(estimate.edges, estimate.edges_exact)} edges, "
        f"features of width {estimate.width}",
    )
    print_line(
        console,
        f"[bold]Grid[/]    {grid}: {_some(grid.workers, 'worker')}, "
        f"{_some(grid.graph, 'graph partition')} times {_some(grid.feature, 'feature partition')}",
    )
    console.print(_planned_memory_table(estimate))
    if estimate.traffic:
        console.print(_planned_traffic_table(estimate))
    for note in estimate.notes:
        print_line(console, f"[dim]note:[/] {escaped(note)}")


def _stage_table(report: RunReport) -> Table:
    table = new_table("Stages", ["stage"], ["seconds", "share"])
    total = report.total_seconds or 1.0
    for stage, seconds in report.stages.items():
        table.add_row(stage, f"{seconds:.2f}", f"{seconds / total:.0%}")
    table.add_row("total", f"{report.total_seconds:.2f}", "", style="bold")
    return table


def _traffic_table(traffic: Iterable[Traffic]) -> Table:
    """Summed over layers and groups; --json has them all."""
    # What is sent is received, so one of the two is enough on a terminal.
    numbers = ["bytes", "messages", "wait s", "compute s"]
    table = new_table("Moved by axis and primitive, all workers", ["axis", "primitive"], numbers)
    sums: dict[tuple[str, str], list[float]] = {}
    for item in traffic:
        row = sums.setdefault((item.axis, item.primitive), [0, 0, 0.0, 0.0])
        row[0] += item.bytes_sent
        row[1] += item.messages
        row[2] += item.wait_seconds
        row[3] += item.compute_seconds
    for (axis, primitive), (sent, messages, wait, compute) in sorted(sums.items()):
        table.add_row(
            axis,
            primitive,
            human_bytes(sent),
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
    return table


def _planned_traffic_table(estimate: Estimate) -> Table:
    words = ["axis", "primitive", "layer"]
    table = new_table("Bytes sent, of each worker", words, ["bytes", "messages"])
    for item in estimate.traffic:
        table.add_row(
            *_traffic_words(item), human_bytes(item.bytes_per_worker), f"{item.messages:,}"
        )
    total = human_bytes(estimate.traffic_total_bytes)
    table.add_row("all workers together", "", "", total, "", style="bold")
    return table


def _traffic_words(item: PlannedTraffic) -> list[str]:
    return [item.axis, item.primitive, "-" if item.layer < 0 else str(item.layer)]


def _about(count: int, exact: bool) -> str:
    return f"{count:,}" if exact else f"about {count:,}"


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
