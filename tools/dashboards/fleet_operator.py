"""The operator on the fleet's dashboard."""

from __future__ import annotations

from tools.dashboards.grafana import GREEN, ORANGE, RED, YELLOW, Query, graph
from tools.dashboards.layout import Board

_RESYNC = "embertide_operator_last_resync_timestamp_seconds"


def add_operator(board: Board) -> None:
    """The section and its panels."""
    board.section("Operator")
    board.add(
        graph(
            "Reconciliations",
            "Reconciliations of jobs by outcome; conflict is harmless, refused and error are not.",
            "ops",
            Query(
                "sum by (outcome) (rate(embertide_operator_reconciles_total[$__rate_interval]))",
                "{{outcome}}",
            ),
            stacked=True,
            colors={"ok": GREEN, "conflict": YELLOW, "refused": ORANGE, "error": RED},
            minimum=0,
        ),
        8,
    )
    board.add(
        graph(
            "Duration of a reconciliation",
            "Median and 99th percentile; most of it is time in the Kubernetes API.",
            "s",
            *(
                Query(
                    f"histogram_quantile({q}, sum by (le) (rate("
                    "embertide_operator_reconcile_duration_seconds_bucket[$__rate_interval])))",
                    name,
                )
                for q, name in ((0.5, "median"), (0.99, "99%"))
            ),
            minimum=0,
        ),
        8,
    )
    board.add(
        graph(
            "Queue",
            "Jobs that are due for reconciliation and wait for it.",
            "none",
            Query("max by (namespace) (embertide_operator_queue_depth)", "{{namespace}}"),
            minimum=0,
            decimals=0,
        ),
        8,
    )
    board.add(
        graph(
            "Lateness",
            "Time since the most overdue job was due, and since all jobs were last listed, by "
            "whichever process: one that was just started has listed none.",
            "s",
            Query(
                "max by (namespace) (embertide_operator_queue_lateness_seconds)",
                "overdue, {{namespace}}",
            ),
            Query(
                f"time() - (max by (namespace) (max_over_time({_RESYNC}[1d])) > 0) "
                "and on (namespace) embertide_operator_info",
                "since a resync, {{namespace}}",
            ),
            minimum=0,
        ),
        8,
    )
    board.add(
        graph(
            "Requests to the Kubernetes API",
            "By HTTP status; 409 is a conflict, which is tried again.",
            "reqps",
            Query(
                "sum by (code) (rate(embertide_operator_api_requests_total[$__rate_interval]))",
                "{{code}}",
            ),
            stacked=True,
            minimum=0,
        ),
        8,
    )
    board.add(
        graph(
            "Duration of requests to the Kubernetes API",
            "The 99th percentile by verb; watches are not counted.",
            "s",
            Query(
                "histogram_quantile(0.99, sum by (le, verb) (rate("
                "embertide_operator_api_request_duration_seconds_bucket[$__rate_interval])))",
                "{{verb}}",
            ),
            minimum=0,
        ),
        8,
    )
