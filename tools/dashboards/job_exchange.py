"""Communication groups on the dashboard of one job."""

from __future__ import annotations

from tools.dashboards.grafana import (
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
from tools.dashboards.job_queries import (
    RANKS,
    RUN,
    last,
    once_long,
    over_time,
    published_soon,
    rate,
    run_total,
)
from tools.dashboards.layout import Board

_INFO = f"embertide_worker_info{{{RUN}}}"
_WHEN = "Once the attempt has published, or each worker has spent 5 minutes in infer."
_EXCHANGE = "by (axis, primitive, layer)"


def add_groups(board: Board) -> None:
    """The section and its panels."""
    board.section("Communication groups: rows are graph ranks p, columns are feature ranks m")
    _add_maps(board)
    _add_rates(board)


def _add_maps(board: Board) -> None:
    sent = "embertide_exchange_sent_bytes_total"
    waited = "embertide_exchange_wait_seconds_sum"
    for title, text, unit, expr in (
        (
            "Sent along the graph axis",
            "Bytes that each worker sent to its group (., m): the workers of its column. Here "
            "features of neighbours move.",
            "bytes",
            _by_place("sent_bytes", "graph", f"sum by ({RANKS}) ({last(sent, _along('graph'))})"),
        ),
        (
            "Sent along the feature axis",
            "Bytes that each worker sent to its group (p, .): the workers of its row. Here columns "
            "turn into rows and back around every matrix product.",
            "bytes",
            _by_place(
                "sent_bytes", "feature", f"sum by ({RANKS}) ({last(sent, _along('feature'))})"
            ),
        ),
        (
            "Waited for others",
            "Seconds that each worker was blocked waiting for data. The worker that waits least "
            "is the one that the others wait for.",
            "s",
            _by_place("wait_seconds", "", f"sum by ({RANKS}) ({last(waited)})"),
        ),
        (
            "Peak memory over plan",
            "Each worker's measured peak above the baseline over the planned one.",
            "percentunit",
            f"max by ({RANKS}) ({run_total('worker_memory_peak_bytes')} "
            f"or {last('embertide_memory_peak_bytes')}) "
            f"/ max by ({RANKS}) ({run_total('worker_memory_planned_bytes')} "
            f"or {last('embertide_memory_planned_bytes')})",
        ),
    ):
        board.add(grid_map(title, f"{text} {_WHEN}", unit, expr, decimals=1), 6, 7)


def _add_rates(board: Board) -> None:
    sent, waited = "embertide_exchange_sent_bytes_total", "embertide_exchange_wait_seconds_sum"
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
    queries = [rows(_moved(how, metric)) for how, metric, _, _ in metrics]
    board.add(
        table(
            "What moved",
            "Totals of all workers, and what the plan expected of them; the layer is empty outside "
            "the layers, and of an attempt that published within minutes. Largest group and depth "
            "are those of one worker.",
            columns | values,
            *queries,
        ),
        24,
        10,
    )
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
    worker = f"sum by (axis, primitive, {RANKS}) ({last('embertide_exchange_sent_bytes_total')})"
    imbalance = f"max by (axis, primitive) ({worker}) / (avg by (axis, primitive) ({worker}) > 0)"
    board.add(
        bars(
            "Imbalance",
            f"Bytes of the worker that sends most over the mean of all; 1 is balanced. {_WHEN}",
            "none",
            now(
                f"max by (axis, primitive) ({run_total('exchange_imbalance_ratio')}) "
                f"or {once_long(imbalance)}",
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
                f"max by (axis, primitive) ({run_total('exchange_depth')} "
                f"or {last('embertide_exchange_depth')})",
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
                f"max by (axis, primitive) ({run_total('exchange_group_largest_bytes')} "
                f"or {last('embertide_exchange_group_largest_bytes')})",
                "{{axis}}, {{primitive}}",
            ),
            now(f"max({last('embertide_exchange_group_limit_bytes')})", "configured"),
        ),
        8,
    )


def _moved(how: str, metric: str) -> str:
    """Live by layer; of a short attempt that published, in total."""
    published = run_total(metric.removesuffix("_total").removesuffix("_sum"))
    live = f"{how} {_EXCHANGE} ({last(f'embertide_{metric}')})"
    return (
        f"{live} unless on () ({published_soon()}) "
        f"or max by (axis, primitive) ({published}) and on () ({published_soon()})"
    )


def _by_place(metric: str, axis: str, live: str) -> str:
    """Totals of each worker: of the run that published, else live ones."""
    labels = f'{RUN}, axis="{axis}"' if axis else RUN
    published = f"max by ({RANKS}) (embertide_last_run_worker_{metric}{{{labels}}})"
    return f"{published} or {once_long(live)}"


def _along(axis: str) -> str:
    return f'{RUN}, axis="{axis}"'
