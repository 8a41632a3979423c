"""Pushes into indexes on the fleet's dashboard."""

from __future__ import annotations

from tools.dashboards.grafana import Query, graph, rows, table
from tools.dashboards.layout import Board

_HERE = 'job_namespace=~"$namespace"'
_JOB = "by (job_namespace, job_name)"
_OUTPUT = "by (job_namespace, output)"


def add_pushes(board: Board) -> None:
    """Add the section and its panels."""
    board.section("Pushes into indexes")
    version = f"max {_JOB} (embertide_push_version_timestamp_seconds{{{_HERE}}})"
    board.add(
        table(
            "Pushes",
            "The newest push of every job with spec.push, with its outcome as in the condition "
            "Pushed, and the version that the job last switched readers to, with its age since its "
            "run began.",
            {
                "job_namespace": ("Namespace", "string"),
                "job_name": ("Job", "string"),
                "reason": ("Outcome", "string"),
                "Value #A": ("Requested", "dateTimeAsIso"),
                "Value #B": ("Failed attempts", "none"),
                "Value #C": ("Pushed", "dateTimeAsIso"),
                "Value #D": ("Age of version", "s"),
                "Value #E": ("Rows", "short"),
                "Value #F": ("Duration", "s"),
            },
            rows(f"1000 * max {_JOB} (embertide_push_requested_timestamp_seconds{{{_HERE}}})"),
            rows(f"max {_JOB} (embertide_push_failures{{{_HERE}}})"),
            rows(f"1000 * max {_JOB} (embertide_push_last_success_timestamp_seconds{{{_HERE}}})"),
            rows(f"time() - {version}"),
            rows(f"max {_JOB} (embertide_push_rows{{{_HERE}}})"),
            rows(f"max {_JOB} (embertide_push_duration_seconds{{{_HERE}}})"),
            rows(
                "max by (job_namespace, job_name, reason) "
                f'(embertide_job_condition{{{_HERE}, condition="Pushed"}})'
            ),
            hidden=("Value #G",),
        ),
        16,
    )
    board.add(
        graph(
            "Age of pushed versions",
            "Time since the run began that computed the version in the index, by output: that of "
            "the job that pushed last, which after a rollback is not the newest version.",
            "s",
            Query(f"time() - {_pushed_last(version)}", "{{output}}"),
            minimum=0,
        ),
        8,
    )


def _pushed_last(version: str) -> str:
    """The value of ``version`` for each output, from its job that last switched readers."""
    output = (
        "* on (job_namespace, job_name) group_left (output) "
        f"max by (job_namespace, job_name, output) (embertide_job_info{{{_HERE}}})"
    )
    success = f"max {_JOB} (embertide_push_last_success_timestamp_seconds{{{_HERE}}}) {output}"
    last = f"({success}) == on (job_namespace, output) group_left () max {_OUTPUT} ({success})"
    return f"max {_OUTPUT} ({version} {output} and on (job_namespace, job_name) ({last}))"
