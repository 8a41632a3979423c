"""Memory, the object store and the last run on the dashboard of one job."""

from __future__ import annotations

from tools.dashboards.grafana import Query, bars, graph, now, rows, stat, table
from tools.dashboards.job_queries import JOB, RANKS, last, over_time, rate, run_total
from tools.dashboards.layout import Board

_AT = "({{graph_rank}}, {{feature_rank}})"


def add_memory(board: Board) -> None:
    """The section and its panels."""
    board.section("Memory")
    baseline = f"max by ({RANKS}) ({over_time('embertide_memory_baseline_bytes')})"
    planned = f"max by ({RANKS}) ({over_time('embertide_memory_planned_bytes')})"
    board.add(
        graph(
            "Memory of workers",
            "The fullest container as its limit counts it, the resident memory of each worker's "
            "process, the fullest worker's plan with its imports, and the containers' limit.",
            "bytes",
            Query(f"max by ({RANKS}) ({over_time('embertide_memory_resident_bytes')})", _AT),
            Query(f"max({over_time('embertide_memory_container_bytes')})", "fullest container"),
            Query(f"max({baseline} + {planned})", "planned"),
            Query(f"min({over_time('embertide_memory_limit_bytes')})", "limit"),
            minimum=0,
        ),
        16,
    )
    peak = f"{run_total('memory_container_peak_bytes')} or "
    peak += last("embertide_memory_container_peak_bytes")
    board.add(
        bars(
            "Peak of each stage",
            "Measured peak of the fullest container, which is what a memory limit must hold, and "
            "that of each stage above a worker's baseline (its imports).",
            "bytes",
            now(f"max({peak})", "whole container"),
            now(f"max by (stage) ({last('embertide_stage_memory_peak_bytes')})", "{{stage}}"),
        ),
        8,
    )


def add_storage(board: Board) -> None:
    """The section and its panels."""
    board.section("Object store")
    for title, text, unit, queries in (
        (
            "Throughput",
            "Bytes read from and written to the object store per second, by all workers together.",
            "Bps",
            [
                Query(f"sum({rate('embertide_storage_read_bytes_total')})", "read"),
                Query(f"sum({rate('embertide_storage_written_bytes_total')})", "written"),
            ],
        ),
        (
            "Requests",
            "Requests per second by operation, retries included.",
            "reqps",
            [
                Query(
                    f"sum by (operation) ({rate('embertide_storage_requests_total')})",
                    "{{operation}}",
                )
            ],
        ),
        (
            "Retries and errors",
            "Requests that were sent again, and calls that failed after all retries, per second.",
            "reqps",
            [
                Query(f"sum({rate('embertide_storage_retries_total')})", "retries"),
                Query(f"sum({rate('embertide_storage_errors_total')})", "errors"),
            ],
        ),
    ):
        board.add(graph(title, text, unit, *queries, minimum=0), 8)


def add_changes(board: Board) -> None:
    """The section and its panels."""
    board.section("Trust: changes since the version before, self-check (of the last run)")
    run = "embertide_last_run"
    for title, text, unit, query, legend in (
        (
            "Rows",
            "Rows that are new, removed or changed, zero vectors and duplicate vectors, by node "
            "type where there are several.",
            "short",
            f"max by (node_type, kind) ({run}_compared_rows{{{JOB}}})",
            "{{node_type}} {{kind}}",
        ),
        (
            "Neighbours kept",
            "Share of its 10 nearest neighbours that a row keeps, on average, within a sample.",
            "percentunit",
            f"max by (node_type) ({run}_neighbours_kept_ratio{{{JOB}}})",
            "{{node_type}} kept",
        ),
        (
            "Cosine of the rows that moved most",
            "Cosine between a row and the same row of the version before, which 5% of the rows do "
            "not exceed.",
            "none",
            f"max by (node_type) ({run}_cosine{{{JOB}}})",
            "{{node_type}} cosine",
        ),
        (
            "Self-check",
            "Largest error of each layer's rows that were computed a second time, in float64, as a "
            "share of the largest magnitude. Beyond its tolerance nothing is published.",
            "none",
            f"max by (layer) ({run}_checked_error_ratio{{{JOB}}})",
            "layer {{layer}}",
        ),
    ):
        board.add(bars(title, text, unit, now(query, legend)), 8)


def add_reused(board: Board) -> None:
    """The section and its panels."""
    board.section("Refresh: what was not computed (of the last run)")
    run = "embertide_last_run"
    for title, text, query, legend in (
        (
            "Nothing has changed",
            "Shows 1 where inputs, model and job had not changed, so that the current version was "
            "confirmed and nothing computed; 0 where a version was computed.",
            f"max(embertide_job_confirmed{{{JOB}}})",
            "confirmed",
        ),
        (
            "Rows computed",
            "Rows of the results that were computed, where all others are those of the version "
            "before (refresh.keep). No data where all were computed.",
            f"max({run}_refreshed_rows{{{JOB}}})",
            "rows",
        ),
        (
            "Resumed after layer",
            "Layer that an earlier attempt had kept (refresh.resume), after which the one that "
            "published went on. No data where it computed all.",
            f"max({run}_resumed_layer{{{JOB}}})",
            "layer",
        ),
        (
            "Layers kept",
            "How many layers the run has kept for a next attempt or the next run. No data where "
            "there are none.",
            f"max({run}_kept_layers{{{JOB}}})",
            "layers",
        ),
    ):
        board.add(stat(title, text, "short", now(query, legend)), 6, 4)


def add_last_run(board: Board) -> None:
    """The section and its panels."""
    board.section("Last run that published (from the job's status, after its workers are gone)")
    run = "embertide_last_run"
    board.add(
        bars(
            "Stages",
            "Seconds of each stage on the slowest worker.",
            "s",
            now(f"max by (stage) ({run}_stage_seconds{{{JOB}}})", "{{stage}}"),
        ),
        6,
    )
    metrics = (
        ("sent_bytes", "Sent", "bytes"),
        ("planned_sent_bytes", "Planned", "bytes"),
        ("sent_messages", "Messages", "short"),
        ("planned_sent_messages", "Planned messages", "short"),
        ("wait_seconds", "Waited", "s"),
        ("longest_wait_seconds", "Longest", "s"),
        ("overlapped_compute_seconds", "Overlapped", "s"),
        ("imbalance_ratio", "Imbalance", "none"),
        ("groups", "Groups", "short"),
        ("depth", "Depth", "none"),
    )
    columns = {"axis": ("Axis", "string"), "primitive": ("Primitive", "string")}
    values = {
        f"Value #{'ABCDEFGHIJ'[n]}": (heading, unit) for n, (_, heading, unit) in enumerate(metrics)
    }
    board.add(
        table(
            "Exchange",
            "Totals of all workers beside the plan; the longest wait and the imbalance are those "
            "of one worker against the others.",
            columns | values,
            *(
                rows(f"max by (axis, primitive) ({run}_exchange_{metric}{{{JOB}}})")
                for metric, _, _ in metrics
            ),
        ),
        18,
    )
    for title, text, unit, metric, legend in (
        ("Duration", "Seconds from start to publication.", "s", "duration_seconds", "duration"),
        (
            "Storage requests",
            "Requests of all workers, retries included.",
            "short",
            "storage_requests",
            "requests",
        ),
        (
            "Storage retries",
            "Requests that were sent again.",
            "short",
            "storage_retries",
            "retries",
        ),
        (
            "Storage errors",
            "Calls that failed after all retries.",
            "short",
            "storage_errors",
            "errors",
        ),
        (
            "Read",
            "Bytes that all workers read from the object store.",
            "bytes",
            "storage_read_bytes",
            "read",
        ),
        (
            "Written",
            "Bytes that all workers sent to the object store.",
            "bytes",
            "storage_written_bytes",
            "written",
        ),
    ):
        query = now(f"max({run}_{metric}{{{JOB}}})", legend)
        board.add(stat(title, text, unit, query), 4, 4)
