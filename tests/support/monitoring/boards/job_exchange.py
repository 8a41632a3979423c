"""Communication groups on the dashboard of one job."""

from __future__ import annotations

from tests.support.monitoring.boards.grafana import (
    ORANGE,
    RED,
    Query,
    bars,
    bucket_map,
    graph,
    grid_map,
    levels,
    now,
    rows,
    table,
)
from tests.support.monitoring.boards.job_queries import (
    RANKS,
    RUN,
    last,
    over_time,
    rate,
)
from tests.support.monitoring.boards.layout import Board

_INFO = f"embertide_worker_info{{{RUN}}}"
_EXCHANGE = "by (axis, primitive, layer)"


def add_groups(board: Board) -> None:
    """The section and its panels."""
    board.section("Communication groups: rows are graph ranks p, columns are feature ranks m")
    sent = "embertide_exchange_sent_bytes_total"
    waited = "embertide_exchange_wait_seconds_sum"
    for title, text, unit, expr in (
        (
            "Sent along the graph axis",
            "Bytes that each worker sent to its group (., m): the workers of its column. Here "
            "features of neighbours move.",
            "bytes",
            f"sum by ({RANKS}) ({last(sent, _along('graph'))})",
        ),
        (
            "Sent along the feature axis",
            "Bytes that each worker sent to its group (p, .): the workers of its row. Here columns "
            "turn into rows and back around every matrix product.",
            "bytes",
            f"sum by ({RANKS}) ({last(sent, _along('feature'))})",
        ),
        (
            "Waited for others",
            "Seconds that each worker was blocked waiting for data. The worker that waits least "
            "is the one that the others wait for.",
            "s",
            f"sum by ({RANKS}) ({last(waited)})",
        ),
        (
            "Peak memory over plan",
            "Each worker's measured peak above the baseline over the planned one.",
            "percentunit",
            f"max by ({RANKS}) ({last('embertide_memory_peak_bytes')}) "
            f"/ max by ({RANKS}) ({last('embertide_memory_planned_bytes')})",
        ),
    ):
        board.add(grid_map(title, text, unit, expr, decimals=1), 6, 7)
    for axis, rank, name in (
        ("graph", "feature_rank", "(., {{feature_rank}})"),
        ("feature", "graph_rank", "({{graph_rank}}, .)"),
    ):
        board.add(
            graph(
                f"Groups of the {axis} axis: bytes",
                f"Bytes per second within each group along the {axis} axis.",
                "Bps",
                Query(f"sum by ({rank}) ({rate(sent, _along(axis))})", name),
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
                    f"sum by ({rank}) ({rate(waited, _along(axis))}) "
                    f"/ count by ({rank}) (last_over_time({_INFO}[$__rate_interval]))",
                    name,
                ),
                minimum=0,
            ),
            6,
        )


def add_exchange(board: Board) -> None:
    """The section and its panels."""
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
        rows(f"{how} {_EXCHANGE} ({last(f'embertide_{metric}')})") for how, metric, _, _ in metrics
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
    sent = last("embertide_exchange_sent_bytes_total")
    overlapped, waited = (
        f"sum by (primitive) ({over_time(f'embertide_exchange_{metric}')})"
        for metric in ("overlapped_compute_seconds_total", "wait_seconds_sum")
    )
    board.add(
        bucket_map(
            "Length of waits",
            "Waits per second by their length: many long ones mean that workers stand still.",
            "s",
            f"sum by (le) ({rate('embertide_exchange_wait_seconds_bucket')})",
        ),
        12,
    )
    board.add(
        graph(
            "Communication hidden behind computation",
            "Overlapped computation over itself plus waiting, by primitive, since the attempt "
            "began: 100% is no waiting.",
            "percentunit",
            Query(
                f"{overlapped} / ({overlapped} + {waited} > 0)",
                "{{primitive}}",
            ),
            minimum=0,
            maximum=1,
        ),
        12,
    )
    worker = f"sum by (axis, primitive, {RANKS}) ({sent})"
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
                f"max by (axis, primitive) ({last('embertide_exchange_depth')})",
                "{{axis}}, {{primitive}}",
            ),
            now(f"max({last('embertide_exchange_depth_limit')})", "configured"),
        ),
        8,
    )
    board.add(
        bars(
            "Size of groups",
            "Largest group that a worker received, and the configured size.",
            "bytes",
            now(
                f"max by (axis, primitive) ({last('embertide_exchange_group_largest_bytes')})",
                "{{axis}}, {{primitive}}",
            ),
            now(f"max({last('embertide_exchange_group_limit_bytes')})", "configured"),
        ),
        8,
    )


def _along(axis: str) -> str:
    return f'{RUN}, axis="{axis}"'
