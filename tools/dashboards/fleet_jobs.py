"""Jobs and their last runs on the fleet's dashboard."""

from __future__ import annotations

from tools.dashboards.grafana import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    Query,
    graph,
    rows,
    table,
)
from tools.dashboards.layout import Board

_HERE = 'job_namespace=~"$namespace"'
_JOB = "by (job_namespace, job_name)"
_NAME = "{{job_namespace}}/{{job_name}}"
_PHASES = {
    "Pending": GRAY,
    "Waiting": YELLOW,
    "Planning": YELLOW,
    "Starting": YELLOW,
    "Running": BLUE,
    "Restarting": ORANGE,
    "Suspended": PURPLE,
    "Succeeded": GREEN,
    "Failed": RED,
}


def add_jobs(board: Board) -> None:
    """The section and its panels."""
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


def add_last_runs(board: Board) -> None:
    """The section and its panels."""
    board.section("Last runs")
    memory = [
        f"max {_JOB} (embertide_last_run_memory_{kind}_bytes{{{_HERE}}})"
        for kind in ("container_peak", "peak", "planned")
    ]
    sent = [
        f"sum {_JOB} (embertide_last_run_exchange_{kind}{{{_HERE}}})"
        for kind in ("sent_bytes", "planned_sent_bytes", "wait_seconds")
    ]
    board.add(
        table(
            "Last run of every job",
            "What the last run that published took, beside what the plan expected. A limit must "
            "hold the container's memory; beyond imports is the fullest worker's own work, which "
            "the plan estimates; waiting is summed over all workers.",
            {
                "job_namespace": ("Namespace", "string"),
                "job_name": ("Job", "string"),
                "Value #A": ("Duration", "s"),
                "Value #B": ("Container memory", "bytes"),
                "Value #C": ("Beyond imports", "bytes"),
                "Value #D": ("Planned beyond imports", "bytes"),
                "Value #E": ("Sent", "bytes"),
                "Value #F": ("Planned to send", "bytes"),
                "Value #G": ("Waited", "s"),
            },
            rows(f"max {_JOB} (embertide_last_run_duration_seconds{{{_HERE}}})"),
            *map(rows, memory),
            *map(rows, sent),
        ),
        24,
    )
    run = "embertide_last_run"
    some = f"count({run}_refreshed_rows{{{_HERE}}})"
    board.add(
        graph(
            "What jobs did not compute",
            "Jobs by what they took over: all of a version, since nothing had changed; the rows "
            "that had not changed; layers of an attempt that failed; or nothing. A resumed job is "
            "counted twice.",
            "none",
            Query(f"sum(embertide_job_confirmed{{{_HERE}}})", "nothing has changed"),
            Query(some, "some rows computed"),
            Query(f"count({run}_resumed_layer{{{_HERE}}})", "resumed"),
            Query(f"count({run}_info{{{_HERE}}}) - ({some} or vector(0))", "all rows computed"),
            minimum=0,
            decimals=0,
        ),
        24,
    )
