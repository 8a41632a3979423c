"""The dashboard of all jobs and outputs, and of the operator."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import BigValueTextMode
from grafana_foundation_sdk.models.dashboard import Dashboard

from tools.dashboards.fleet_jobs import add_jobs, add_last_runs
from tools.dashboards.fleet_operator import add_operator
from tools.dashboards.fleet_pushes import add_pushes
from tools.dashboards.grafana import (
    ORANGE,
    RED,
    Query,
    bars,
    graph,
    levels,
    now,
    rows,
    stat,
    table,
)
from tools.dashboards.layout import Board, choice, link

UID = "embertide-fleet"

_HERE = 'job_namespace=~"$namespace"'
_OUTPUT = "by (job_namespace, output)"
_FRESH = levels((0.8, ORANGE), (1.0, RED))
_ANY_IS_BAD = levels((1, RED))


def fleet() -> Dashboard:
    """The whole dashboard."""
    board = Board(
        UID,
        "Embertide / Fleet",
        "Every EmbeddingJob, how fresh its output is, and the operator that runs them.",
        [
            choice(
                "namespace",
                "Namespace",
                "label_values(embertide_job_info, job_namespace)",
                several=True,
            )
        ],
        [link("Embertide / Job", "embertide-job")],
    )
    _overview(board)
    _freshness(board)
    add_jobs(board)
    add_last_runs(board)
    add_pushes(board)
    add_operator(board)
    return board.build()


def _overview(board: Board) -> None:
    board.section("Overview")
    phase = f"embertide_job_phase{{{_HERE}, phase"
    board.add(
        stat(
            "Running",
            "Jobs whose workers are planned, started or at work.",
            "none",
            now(f'sum({phase}=~"Planning|Starting|Running|Restarting"}}) or vector(0)', "running"),
        ),
        4,
        4,
    )
    board.add(
        stat(
            "Pending",
            "Jobs that wait for another job with the same output, or were not accepted.",
            "none",
            now(f'sum({phase}="Pending"}}) or vector(0)', "pending"),
        ),
        4,
        4,
    )
    board.add(
        stat(
            "Failed",
            "Jobs that failed for good and still exist.",
            "none",
            now(f'sum({phase}="Failed"}}) or vector(0)', "failed"),
            thresholds=_ANY_IS_BAD,
        ),
        4,
        4,
    )
    board.add(
        stat(
            "Stale outputs",
            "Outputs older than spec.freshness.maxAge of their newest job allows.",
            "none",
            now(
                f"count(output:embertide_output_freshness:ratio{{{_HERE}}} > 1) or vector(0)",
                "stale",
            ),
            thresholds=_ANY_IS_BAD,
        ),
        4,
        4,
    )
    board.add(
        stat(
            "Alerts",
            "Alerts of Embertide that fire; each links to its runbook.",
            "none",
            now(
                'count(ALERTS{alertname=~"Embertide.*", alertstate="firing"}) or vector(0)',
                "firing",
            ),
            thresholds=_ANY_IS_BAD,
        ),
        4,
        4,
    )
    board.add(
        stat(
            "Operator",
            "Version of every operator that is scraped.",
            "none",
            now("count by (version) (embertide_operator_info)", "{{version}}"),
            text_mode=BigValueTextMode.NAME,
        ),
        4,
        4,
    )


def _freshness(board: Board) -> None:
    board.section("Freshness of outputs")
    success = f"max {_OUTPUT} (embertide_output_last_success_timestamp_seconds{{{_HERE}}})"
    objective = f"max {_OUTPUT} (embertide_output_freshness_objective_seconds{{{_HERE}}})"
    board.add(
        table(
            "Outputs",
            "Every output: who published it last and when, its age, and the age it may reach.",
            {
                "output": ("Output", "string"),
                "job_namespace": ("Namespace", "string"),
                "job_name": ("Published by", "string"),
                "Value #A": ("Published", "dateTimeAsIso"),
                "Value #B": ("Age", "s"),
                "Value #C": ("Allowed age", "s"),
            },
            rows(
                f"1000 * {success} * on (job_namespace, output) group_left (job_name) "
                f"max by (job_namespace, output, job_name) (embertide_output_info{{{_HERE}}})"
            ),
            rows(f"max {_OUTPUT} (output:embertide_output_age_seconds:max{{{_HERE}}})"),
            rows(objective),
        ),
        16,
    )
    board.add(
        bars(
            "Used share of the allowed age",
            "Age of each output over spec.freshness.maxAge; above 100% it is stale.",
            "percentunit",
            now(
                f"label_replace(output:embertide_output_freshness:ratio{{{_HERE}}}, "
                '"name", "$1", "output", ".*?([^/]+)/*")',
                "{{job_namespace}}/{{name}}",
            ),
            maximum=1,
            thresholds=_FRESH,
        ),
        8,
    )
    board.add(
        graph(
            "Age of outputs",
            "Time since each output was last published; it drops to zero with every success.",
            "s",
            Query(f"output:embertide_output_age_seconds:max{{{_HERE}}}", "{{output}}"),
            minimum=0,
        ),
        24,
        7,
    )
