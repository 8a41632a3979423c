"""The dashboard of one job: its attempt, its communication groups, its memory, its last run.

A worker's series end with its pod, so numbers that are not over time are the last ones in the
chosen range (``last_over_time``). What the last run left in the job's status stays longer.
"""

from __future__ import annotations

from tests.support.monitoring.boards.grafana import (
    ORANGE,
    RED,
    Board,
    Json,
    Query,
    bars,
    bucket_map,
    choice,
    graph,
    grid_map,
    levels,
    link,
    now,
    rows,
    stat,
    table,
    timeline,
)

UID = "embertide-job"

_JOB = 'job_namespace="$namespace", job_name="$job"'
_RUN = f'{_JOB}, attempt="$attempt"'
_RANKS = "graph_rank, feature_rank"
_AT = "({{graph_rank}}, {{feature_rank}})"
_EXCHANGE = "by (axis, primitive, layer)"


def job() -> Json:
    """Grafana's JSON."""
    chosen = 'job_namespace="$namespace"'
    board = Board(
        UID,
        "Embertide / Job",
        "One EmbeddingJob: stages, communication groups on the P x M grid, memory, S3.",
        [
            choice("namespace", "Namespace", "label_values(embertide_job_info, job_namespace)"),
            choice("job", "Job", f"label_values(embertide_job_info{{{chosen}}}, job_name)"),
            choice(
                "attempt",
                "Attempt",
                f"label_values(embertide_worker_info{{{_JOB}}}, attempt)",
                newest=True,
            ),
        ],
        [link("Embertide / Fleet", "embertide-fleet")],
    )
    _overview(board)
    _stages(board)
    _groups(board)
    _exchange(board)
    _memory(board)
    _storage(board)
    _last_run(board)
    return board.to_json()


def _last(metric: str, labels: str = _RUN) -> str:
    return f"last_over_time({metric}{{{labels}}}[$__range])"


def _rate(metric: str, labels: str = _RUN) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def _overview(board: Board) -> None:
    board.section("Overview")
    numbers = (
        (
            "Phase",
            "Phase of the job, as kubectl get ej shows it.",
            now(f"max by (phase) (embertide_job_phase{{{_JOB}}}) == 1", "{{phase}}"),
            {"text_mode": "name"},
            "none",
        ),
        (
            "Progress",
            "Share of the current attempt that is done.",
            now(f"max(embertide_job_progress_ratio{{{_JOB}}})", "progress"),
            {"decimals": 0},
            "percentunit",
        ),
        (
            "Workers ready",
            "Workers of the current attempt that are ready; none once they are stopped.",
            now(f'max(embertide_job_workers{{{_JOB}, state="ready"}})', "ready"),
            {},
            "none",
        ),
        (
            "Failed attempts",
            "Failed attempts that count against spec.backoffLimit.",
            now(f"max(embertide_job_failures{{{_JOB}}})", "failures"),
            {"thresholds": levels((1, ORANGE))},
            "none",
        ),
        (
            "Nodes",
            "Nodes of the whole graph.",
            now(f"max({_last('embertide_graph_nodes')})", "nodes"),
            {},
            "short",
        ),
        (
            "Edges",
            "Edges of the whole graph.",
            now(f"max({_last('embertide_graph_edges')})", "edges"),
            {},
            "short",
        ),
    )
    for title, text, query, options, unit in numbers:
        board.add(stat(title, text, unit, query, **options), 4, 4)


def _stages(board: Board) -> None:
    board.section("Stages")
    board.add(
        timeline(
            "Stages over time",
            "In which stages workers are; a stage is marked while at least one worker is in it.",
            Query(f"max by (stage) (embertide_stage_current{{{_RUN}}})", "{{stage}}"),
        ),
        12,
    )
    board.add(
        bars(
            "Time in each stage",
            "Seconds of the worker that was longest in a stage.",
            "s",
            now(
                f"sort_desc(max by (stage) ({_last('embertide_stage_seconds_total')}))", "{{stage}}"
            ),
        ),
        6,
    )
    board.add(
        graph(
            "Progress of workers",
            "Share of the run that the first and the last worker have done.",
            "percentunit",
            Query(f"max(embertide_progress_ratio{{{_RUN}}})", "first"),
            Query(f"min(embertide_progress_ratio{{{_RUN}}})", "last"),
            minimum=0,
            maximum=1,
        ),
        6,
    )
    for title, what, metric, unit in (
        ("Edges", "Edges read (ingest) and aggregated (infer)", "edges", "ops"),
        ("Rows", "Rows loaded, computed and written", "rows", "ops"),
    ):
        query = Query(
            f"sum by (stage) ({_rate(f'embertide_processed_{metric}_total')})", "{{stage}}"
        )
        text = f"{what}, per second, by all workers together."
        board.add(graph(f"{title} per second", text, unit, query, minimum=0), 12, 7)


def _groups(board: Board) -> None:
    board.section("Communication groups: rows are graph ranks p, columns are feature ranks m")
    sent = "embertide_exchange_sent_bytes_total"
    waited = "embertide_exchange_wait_seconds_sum"
    for title, text, unit, expr in (
        (
            "Sent along the graph axis",
            "Bytes that each worker sent to its group (., m): the workers of its column. Here "
            "features of neighbours move.",
            "bytes",
            f"sum by ({_RANKS}) ({_last(sent, _RUN + ', axis=~' + _quoted('graph|world'))})",
        ),
        (
            "Sent along the feature axis",
            "Bytes that each worker sent to its group (p, .): the workers of its row. Here columns "
            "turn into rows and back around every matrix product.",
            "bytes",
            f"sum by ({_RANKS}) ({_last(sent, _RUN + ', axis=~' + _quoted('feature|world'))})",
        ),
        (
            "Waited for others",
            "Seconds that each worker was blocked waiting for data. The worker that waits least "
            "is the one that the others wait for.",
            "s",
            f"sum by ({_RANKS}) ({_last(waited)})",
        ),
        (
            "Peak memory over plan",
            "Measured peak above the baseline over the planned one.",
            "percentunit",
            f"max by ({_RANKS}) ({_last('embertide_memory_peak_bytes')}) "
            f"/ max by ({_RANKS}) ({_last('embertide_memory_planned_bytes')})",
        ),
    ):
        board.add(grid_map(title, text, unit, expr, decimals=1), 6, 7)
    for axis, rank, name in (
        ("graph", "feature_rank", "(., {{feature_rank}})"),
        ("feature", "graph_rank", "({{graph_rank}}, .)"),
    ):
        chosen = f'{_RUN}, axis="{axis}"'
        board.add(
            graph(
                f"Groups of the {axis} axis: bytes",
                f"Bytes per second within each group along the {axis} axis.",
                "Bps",
                Query(f"sum by ({rank}) ({_rate(sent, chosen)})", name),
                minimum=0,
            ),
            6,
        )
        board.add(
            graph(
                f"Groups of the {axis} axis: waiting",
                f"Share of time that the workers of each group along the {axis} axis are blocked, "
                "on average.",
                "percentunit",
                Query(
                    f"sum by ({rank}) ({_rate(waited, chosen)}) "
                    f"/ count by ({rank}) (embertide_worker_info{{{_RUN}}})",
                    name,
                ),
                minimum=0,
            ),
            6,
        )


def _exchange(board: Board) -> None:
    board.section("Exchange by axis, primitive and layer")
    metrics = (
        ("sum", "exchange_sent_bytes_total", "Sent", "bytes"),
        ("sum", "exchange_planned_sent_bytes", "Planned", "bytes"),
        ("sum", "exchange_sent_messages_total", "Messages", "short"),
        ("sum", "exchange_planned_sent_messages", "Planned messages", "short"),
        ("sum", "exchange_wait_seconds_sum", "Waited", "s"),
        ("sum", "exchange_overlapped_compute_seconds_total", "Overlapped", "s"),
        ("sum", "exchange_groups_total", "Groups", "short"),
        ("max", "exchange_group_largest_bytes", "Largest group", "bytes"),
        ("max", "exchange_depth", "Depth used", "none"),
    )
    columns = {name: (name.capitalize(), "string") for name in ("axis", "primitive", "layer")}
    values = {
        f"Value #{'ABCDEFGHIJ'[n]}": (heading, unit)
        for n, (_, _, heading, unit) in enumerate(metrics)
    }
    queries = [
        rows(f"{how} {_EXCHANGE} ({_last(f'embertide_{metric}')})") for how, metric, _, _ in metrics
    ]
    board.add(
        table(
            "What moved",
            "Totals of all workers, and what the plan expected of them; the layer is empty outside "
            "the layers. Largest group and depth are those of one worker.",
            columns | values,
            *queries,
        ),
        24,
        10,
    )
    sent = _last("embertide_exchange_sent_bytes_total")
    overlapped = _rate("embertide_exchange_overlapped_compute_seconds_total")
    waited = _rate("embertide_exchange_wait_seconds_sum")
    board.add(
        bucket_map(
            "Length of waits",
            "Waits per second by their length: many long ones mean that workers stand still.",
            "s",
            f"sum by (le) ({_rate('embertide_exchange_wait_seconds_bucket')})",
        ),
        12,
    )
    board.add(
        graph(
            "Communication hidden behind computation",
            "Overlapped computation over itself plus waiting, by primitive: 100% is no waiting.",
            "percentunit",
            Query(
                f"sum by (primitive) ({overlapped}) / (sum by (primitive) ({overlapped}) "
                f"+ sum by (primitive) ({waited}))",
                "{{primitive}}",
            ),
            minimum=0,
            maximum=1,
        ),
        12,
    )
    worker = f"sum by (axis, primitive, {_RANKS}) ({sent})"
    board.add(
        bars(
            "Imbalance",
            "Bytes of the worker that sends most over the mean of all; 1 is balanced.",
            "none",
            now(
                f"max by (axis, primitive) ({worker}) / (avg by (axis, primitive) ({worker}) > 0)",
                "{{axis}}, {{primitive}}",
            ),
            decimals=2,
            thresholds=levels((1.5, ORANGE), (3, RED)),
        ),
        8,
    )
    board.add(
        bars(
            "Groups in flight",
            "Largest number of groups under way at the same time, and the configured depth.",
            "none",
            now(
                f"max by (axis, primitive) ({_last('embertide_exchange_depth')})",
                "{{axis}}, {{primitive}}",
            ),
            now(f"max({_last('embertide_exchange_depth_limit')})", "configured"),
        ),
        8,
    )
    board.add(
        bars(
            "Size of groups",
            "Largest group that a worker received, and the configured size.",
            "bytes",
            now(
                f"max by (axis, primitive) ({_last('embertide_exchange_group_largest_bytes')})",
                "{{axis}}, {{primitive}}",
            ),
            now(f"max({_last('embertide_exchange_group_limit_bytes')})", "configured"),
        ),
        8,
    )


def _memory(board: Board) -> None:
    board.section("Memory")
    baseline = f"max by ({_RANKS}) (embertide_memory_baseline_bytes{{{_RUN}}})"
    planned = f"max by ({_RANKS}) (embertide_memory_planned_bytes{{{_RUN}}})"
    board.add(
        graph(
            "Memory of workers",
            "Resident memory of each worker, the fullest worker's plan with its imports, and the "
            "limit of the containers.",
            "bytes",
            Query(f"max by ({_RANKS}) (embertide_memory_resident_bytes{{{_RUN}}})", _AT),
            Query(f"max({baseline} + {planned})", "planned"),
            Query(f"min(embertide_memory_limit_bytes{{{_RUN}}})", "limit"),
            minimum=0,
        ),
        16,
    )
    board.add(
        bars(
            "Peak of each stage",
            "Measured peak above the baseline, of the fullest worker.",
            "bytes",
            now(f"max by (stage) ({_last('embertide_stage_memory_peak_bytes')})", "{{stage}}"),
        ),
        8,
    )


def _storage(board: Board) -> None:
    board.section("S3")
    for title, text, unit, queries in (
        (
            "Throughput",
            "Bytes read from and written to S3 per second, by all workers together.",
            "Bps",
            [
                Query(f"sum({_rate('embertide_s3_read_bytes_total')})", "read"),
                Query(f"sum({_rate('embertide_s3_written_bytes_total')})", "written"),
            ],
        ),
        (
            "Requests",
            "Requests per second by operation, retries included.",
            "reqps",
            [
                Query(
                    f"sum by (operation) ({_rate('embertide_s3_requests_total')})", "{{operation}}"
                )
            ],
        ),
        (
            "Retries and errors",
            "Requests that were sent again, and calls that failed after all retries, per second.",
            "reqps",
            [
                Query(f"sum({_rate('embertide_s3_retries_total')})", "retries"),
                Query(f"sum({_rate('embertide_s3_errors_total')})", "errors"),
            ],
        ),
    ):
        board.add(graph(title, text, unit, *queries, minimum=0), 8)


def _last_run(board: Board) -> None:
    board.section("Last run that published (from the job's status, after its workers are gone)")
    run = "embertide_last_run"
    board.add(
        bars(
            "Stages",
            "Seconds of each stage on the slowest worker.",
            "s",
            now(f"max by (stage) ({run}_stage_seconds{{{_JOB}}})", "{{stage}}"),
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
                rows(f"max by (axis, primitive) ({run}_exchange_{metric}{{{_JOB}}})")
                for metric, _, _ in metrics
            ),
        ),
        18,
    )
    for title, text, unit, metric, legend in (
        ("Duration", "Seconds from start to publication.", "s", "duration_seconds", "duration"),
        (
            "S3 requests",
            "Requests of all workers, retries included.",
            "short",
            "s3_requests",
            "requests",
        ),
        ("S3 retries", "Requests that were sent again.", "short", "s3_retries", "retries"),
        ("S3 errors", "Calls that failed after all retries.", "short", "s3_errors", "errors"),
        ("Read", "Bytes that all workers read from S3.", "bytes", "s3_read_bytes", "read"),
        ("Written", "Bytes that all workers sent to S3.", "bytes", "s3_written_bytes", "written"),
    ):
        query = now(f"max({run}_{metric}{{{_JOB}}})", legend)
        board.add(stat(title, text, unit, query), 4, 4)


def _quoted(text: str) -> str:
    return f'"{text}"'
