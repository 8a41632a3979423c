"""What a worker says is checked before it is believed: it may be anything.

A pod runs what its owner put into it, and its answer ends up in the job's status. So an answer that
is too large, has a number or a time that the API would refuse, or is for another attempt is no
answer, and the reason is reported. The report of the run decides nothing: a bad one is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from embertide.spec.reports import OutputReport, ProgressReport, WorkerStatus

MOST_BYTES = 256 * 1024
"""The longest answer that is read; real ones have a few KiB."""
_LONGEST_TEXT = 1024
_MOST_REPORT_BYTES = 64 * 1024
_LARGEST_NUMBER = 2**63 - 1
_PERCENT = 100
_GRID = re.compile(r"[1-9][0-9]{0,5}x[1-9][0-9]{0,5}")


class BadAnswerError(Exception):
    """An answer that cannot be used; the message says why."""


def read_answer(data: bytes, uid: str, attempt: int) -> WorkerStatus:
    """The status of rank 0 of this job's attempt.

    Raises:
        BadAnswerError: anything else.
    """
    report = WorkerStatus.parse(data)
    if report is None:
        raise BadAnswerError("/status is not what a worker says")
    if (report.job_uid, report.attempt) != (uid, attempt):
        raise BadAnswerError("/status is of another job or attempt")
    if report.progress is not None:
        _check_progress(report.progress)
    if report.output is not None:
        _check_output(report.output)
    run = report.report
    if run is not None and not (_GRID.fullmatch(run.grid or "1x1") and _fits(run.to_object())):
        return report.model_copy(update={"report": None})
    return report


def _fits(value: Any) -> bool:
    """Whether the API server would take an object: no huge number, no NaN, not too large."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    numbers = (item for item in _leaves(value) if isinstance(item, int))
    return len(text) <= _MOST_REPORT_BYTES and all(abs(n) <= _LARGEST_NUMBER for n in numbers)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _check_progress(progress: ProgressReport) -> None:
    _check_text("progress.stage", progress.stage)
    if not 0 <= progress.percent <= _PERCENT:
        raise BadAnswerError("progress.percent is not 0 to 100")
    for name in ("layer", "layers", "eta_seconds", "edges_per_second"):
        _check_number(f"progress.{name}", getattr(progress, name))
    try:
        moment = datetime.fromisoformat(progress.last_update_time.replace("Z", "+00:00"))
    except ValueError:
        raise BadAnswerError("progress.lastUpdateTime is no time") from None
    if moment.tzinfo is None:
        raise BadAnswerError("progress.lastUpdateTime has no time zone")


def _check_output(output: OutputReport) -> None:
    for name in ("version", "uri", "manifest_digest"):
        _check_text(f"output.{name}", getattr(output, name))
    for name in ("rows", "dim"):
        _check_number(f"output.{name}", getattr(output, name))


def _check_text(name: str, text: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise BadAnswerError(f"{name} has more than {_LONGEST_TEXT} characters")


def _check_number(name: str, number: int | None) -> None:
    if number is not None and not 0 <= number <= _LARGEST_NUMBER:
        raise BadAnswerError(f"{name} is {number}")
