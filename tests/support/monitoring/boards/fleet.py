"""The dashboard of all jobs and outputs, and of the operator."""

from __future__ import annotations

from tests.support.monitoring.boards.fleet_operator import add_operator
from tests.support.monitoring.boards.grafana import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Json,
    Query,
    bars,
    graph,
    levels,
    now,
    rows,
    stat,
    table,
)
from tests.support.monitoring.boards.layout import Board, choice, link

UID = "embertide-fleet"

_HERE = 'job_namespace=~"$namespace"'
_OUTPUT = "by (job_namespace, output)"
_JOB = "by (job_namespace, job_name)"
_NAME = "{{job_namespace}}/{{job_name}}"
_FRESH = levels((0.8, ORANGE), (1.0, RED))
_ANY_IS_BAD = levels((1, RED))
_PHASES = {
    "Pending": GRAY,
    "Planning": YELLOW,
    "Starting": YELLOW,
    "Running": BLUE,
    "Restarting": ORANGE,
    "Suspended": PURPLE,
    "Succeeded": GREEN,
    "Failed": RED,
}


def fleet() -> Json:
    """Grafana's JSON."""
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
    _jobs(board)
    _last_runs(board)
    add_operator(board)
    return board.to_json()


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
            text_mode="name",
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


def _jobs(board: Board) -> None:
    board.section("Jobs")
    known = "on (job_namespace, job_name)"
    # Not increase(): the first failure for a reason is where its counter begins.
    failures = f"embertide_operator_attempt_failures_total{{{_HERE}}}"
    failed = f"sum by (reason) ({failures})"
    failed_before = f"sum by (reason) ({failures} offset 1h)"
    phase = f"max by (job_namespace, job_name, phase) (embertide_job_phase{{{_HERE}}} == 1)"
    board.add(
        table(
            "Jobs",
            "Every job that exists, with its progress and its attempts.",
            {
                "job_namespace": ("Namespace", "string"),
                "job_name": ("Job", "string"),
                "phase": ("Phase", "string"),
                "Value #B": ("Progress", "percentunit"),
                "Value #C": ("Attempt", "none"),
                "Value #D": ("Failed attempts", "none"),
                "reason": ("Last failure", "string"),
                "Value #E": ("Started", "dateTimeAsIso"),
            },
            rows(phase),
            rows(f"max {_JOB} (embertide_job_progress_ratio{{{_HERE}}})"),
            rows(f"max {_JOB} (embertide_job_attempt{{{_HERE}}})"),
            rows(f"max {_JOB} (embertide_job_failures{{{_HERE}}})"),
            rows(f"1000 * max {_JOB} (embertide_job_start_timestamp_seconds{{{_HERE}}})"),
            rows(
                "max by (job_namespace, job_name, reason) "
                f"(embertide_job_last_failure_info{{{_HERE}}})"
            ),
            hidden=("Value #A", "Value #F"),
        ),
        16,
        9,
    )
    board.add(
        graph(
            "Jobs by phase",
            "How many jobs are in each phase.",
            "none",
            Query(f"sum by (phase) (embertide_job_phase{{{_HERE}}}) > 0", "{{phase}}"),
            stacked=True,
            colors=_PHASES,
            minimum=0,
            decimals=0,
        ),
        8,
        9,
    )
    board.add(
        graph(
            "Progress of running jobs",
            "Share of each attempt that is done; it starts again at 0 with every attempt.",
            "percentunit",
            Query(
                f"max {_JOB} (embertide_job_progress_ratio{{{_HERE}}}) and {known} "
                f'(max {_JOB} (embertide_job_phase{{{_HERE}, phase=~"Running|Starting"}}) == 1)',
                _NAME,
            ),
            minimum=0,
            maximum=1,
        ),
        8,
    )
    board.add(
        graph(
            "Failed attempts within an hour",
            "Attempts that failed within the hour before, by reason as in status.lastFailure.",
            "none",
            Query(f"clamp_min({failed} - ({failed_before} or 0 * {failed}), 0)", "{{reason}}"),
            minimum=0,
            decimals=0,
        ),
        8,
    )
    board.add(
        graph(
            "Duration of finished jobs",
            "Median and 95th percentile of start to completion since the operator was started, by "
            "result.",
            "s",
            *(
                Query(
                    f"histogram_quantile({q}, sum by (le, result) "
                    f"(embertide_operator_job_duration_seconds_bucket{{{_HERE}}}))",
                    f"{{{{result}}}}, {name}",
                )
                for q, name in ((0.5, "median"), (0.95, "95%"))
            ),
            minimum=0,
        ),
        8,
    )


def _last_runs(board: Board) -> None:
    board.section("Last runs")
    memory = [
        f"max {_JOB} (embertide_last_run_memory_{kind}_bytes{{{_HERE}}})"
        for kind in ("peak", "planned")
    ]
    sent = [
        f"sum {_JOB} (embertide_last_run_exchange_{kind}{{{_HERE}}})"
        for kind in ("sent_bytes", "planned_sent_bytes", "wait_seconds")
    ]
    board.add(
        table(
            "Last run of every job",
            "What the last run that published took, beside what the plan expected. Memory is the "
            "fullest worker's above its imports; waiting is summed over all workers.",
            {
                "job_namespace": ("Namespace", "string"),
                "job_name": ("Job", "string"),
                "Value #A": ("Duration", "s"),
                "Value #B": ("Memory", "bytes"),
                "Value #C": ("Planned memory", "bytes"),
                "Value #D": ("Sent", "bytes"),
                "Value #E": ("Planned to send", "bytes"),
                "Value #F": ("Waited", "s"),
            },
            rows(f"max {_JOB} (embertide_last_run_duration_seconds{{{_HERE}}})"),
            *map(rows, memory),
            *map(rows, sent),
        ),
        24,
    )
