"""The push into an index on the dashboard of one job."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import BigValueTextMode

from tools.dashboards.grafana import ORANGE, levels, now, stat
from tools.dashboards.job_queries import JOB
from tools.dashboards.layout import Board


def add_push(board: Board) -> None:
    """Add the section and its panels."""
    board.section("Push into the index of spec.push (from the job's status)")
    outcome = f'max by (reason) (embertide_job_condition{{{JOB}, condition="Pushed"}})'
    board.add(
        stat(
            "Outcome",
            "Reason of the condition Pushed: Pushed, Pushing, or why the newest push failed.",
            "none",
            now(outcome, "{{reason}}"),
            text_mode=BigValueTextMode.NAME,
        ),
        6,
        4,
    )
    for panel in (
        stat(
            "Requested",
            "Time since the newest push was asked for.",
            "s",
            now(f"time() - {_push('requested_timestamp_seconds')}", "ago"),
        ),
        stat(
            "Failed pushes",
            "Attempts of the newest push that failed, those that a disruption ended apart.",
            "none",
            now(_push("failures"), "failures"),
            thresholds=levels((1, ORANGE)),
        ),
        stat(
            "Pushed",
            "Time since this job last switched readers of the index.",
            "s",
            now(f"time() - {_push('last_success_timestamp_seconds')}", "ago"),
        ),
        stat(
            "Age of version",
            "Time since the run began that computed the version that this job last switched "
            "readers of the index to.",
            "s",
            now(f"time() - {_push('version_timestamp_seconds')}", "age"),
        ),
        stat(
            "Rows pushed",
            "Rows of that version in the index.",
            "short",
            now(_push("rows"), "rows"),
        ),
        stat(
            "Push duration",
            "Seconds of the attempt that switched readers to that version.",
            "s",
            now(_push("duration_seconds"), "duration"),
        ),
    ):
        board.add(panel, 3, 4)


def _push(metric: str) -> str:
    return f"max(embertide_push_{metric}{{{JOB}}})"
