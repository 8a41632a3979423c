"""A published version is success, whatever else is true of the job.

Two channels say so: rank 0's ``/status``, and its container, which ends once with exit code 0 and
its :class:`OutputReport` as termination message. The second needs nothing but the Kubernetes API,
so it holds under network policies, in a mesh, and for an operator that was away. It has no report
of the run; where only it has spoken, the container that was started again is given a moment to
tell the rest over ``/status``.

Where the planner, or rank 0, found that the current version is what the job would compute, the job
is complete with that version, and nothing was computed.

This is looked at before any deadline, change of the spec, suspension or failure is: readers have
the version already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embertide.spec.reports import OutputReport, ProgressReport
from embertide.spec.run_status import RunStatus
from embertide.spec.status import OutputStatus
from embertide_operator.api.routes import Object
from embertide_operator.decide.decision import Decision, stop_pods
from embertide_operator.decide.tracking import set_progress
from embertide_operator.job.conditions import HELD, NOT_CURRENT
from embertide_operator.job.failures import published_by
from embertide_operator.job.observe import Observed, container_status, output_of
from embertide_operator.job.status import Draft, parse_time, timestamp

CONFIRMED = "Confirmed"
_HELD = (
    "{where}; the gate holds it, and readers keep the version before until embertide release: {why}"
)
_NOT_CURRENT = "{where}; it is not current: {why}"
_PASSED = "a run that began later, or a rollback, has set the current version"
_REPORT_SECONDS = 5.0
"""How long a version that only the termination message tells of waits for the run's report."""
_REPORT_REQUEUE_SECONDS = 0.5
_MOST_TYPES_SHOWN = 4
"""In a message or a column; the list of the status has all."""


@dataclass(frozen=True)
class Publication:
    """What rank 0 reports of its published version; ``over_http``: by ``/status``."""

    output: OutputReport
    progress: ProgressReport | None = None
    report: RunStatus | None = None
    over_http: bool = False


def complete_if_published(seen: Observed, draft: Draft) -> Decision | None:
    """The decision for a job whose current attempt has published; None where it has not."""
    found = _publication(seen, draft["attempt"])
    if found is None and not draft.is_true("Published"):
        return None
    if found is not None:
        _note_output(seen.job, draft, found)
        if not found.over_http and _report_may_come(seen, draft):
            return Decision(draft, requeue_after=_REPORT_REQUEUE_SECONDS)
    return _complete(seen, draft)


def _publication(seen: Observed, attempt: int) -> Publication | None:
    """What rank 0 of an attempt says of its version, over ``/status`` or through its container."""
    report = seen.report
    if report is not None and report.state == "succeeded" and report.output is not None:
        return Publication(report.output, report.progress, report.report, over_http=True)
    pod = seen.rank_zero(attempt)
    output = published_by(pod) if pod is not None else _confirmed_by_planner(seen)
    if output is None or not _is_of(output, seen.job["metadata"]["uid"], attempt):
        return None
    return Publication(output)


def _confirmed_by_planner(seen: Observed) -> OutputReport | None:
    """The version that the planner found to be up to date, before any worker started."""
    return next(filter(None, map(published_by, seen.planners())), None)


def _is_of(output: OutputReport, uid: str, attempt: int) -> bool:
    """Whether a termination message is of this attempt; older workers do not say whose it is."""
    return output.job_uid in ("", uid) and output.attempt in (0, attempt)


def _report_may_come(seen: Observed, draft: Draft) -> bool:
    """Whether rank 0's container, started again, may still answer with the run's report."""
    pod = seen.rank_zero(draft["attempt"])
    if pod is None or pod["metadata"].get("deletionTimestamp") or draft.is_true("Failed"):
        return False
    if "terminated" in (container_status(pod).get("state") or {}):
        return False
    since = parse_time(draft.condition("Published")["lastTransitionTime"])
    return (draft.now - since).total_seconds() < _REPORT_SECONDS


def _note_output(job: Object, draft: Draft, found: Publication) -> None:
    """Set Published and what it says of the version and the run."""
    output = found.output
    uri = output.uri or f"{output_of(job)}/versions/{output.version}"
    if found.progress is not None:
        set_progress(found.progress, draft)
    draft["output"] = _output_object(output, uri)
    draft["report"] = found.report.to_object() if found.report is not None else None
    where = f"{_contents(output)} at {uri}{_without(found.report)}"
    where += _resumed(found.report) or _refreshed(found.report)
    if output.confirmed:
        where += "; inputs, model and job have not changed, so nothing was computed"
    if output.held:
        where = _HELD.format(where=where, why=output.held)
    if _is_passed(output):
        where = _NOT_CURRENT.format(where=where, why=output.not_current or _PASSED)
    reason = _reason(output)
    if draft.set("Published", True, reason, where):
        message = f"version {output.version}: {where}"
        draft.add_event(reason, message, warning=reason in (HELD, NOT_CURRENT))
    _note_removal(draft, output.not_removed)


def _reason(output: OutputReport) -> str:
    if output.held:
        return HELD
    if _is_passed(output):
        return NOT_CURRENT
    return CONFIRMED if output.confirmed else "Published"


def _is_passed(output: OutputReport) -> bool:
    """Whether LATEST names another version although nothing holds this one."""
    return not output.current and not output.held


def _note_removal(draft: Draft, problem: str | None) -> None:
    """Set Pruned to False where versions are left that the job does not keep; else drop it."""
    if problem is None:
        draft.drop("Pruned")
    elif draft.set("Pruned", False, "RemovalFailed", problem):
        draft.add_event("RemovalFailed", problem, warning=True)


def _without(report: RunStatus | None) -> str:
    """What the run did without, because its job allows it."""
    if report is None:
        return ""
    dropped = sum(item.edges for item in report.dropped_edges or [])
    filled = sum(item.nodes for item in report.filled_nodes or [])
    merged = sum(item.nodes for item in report.merged_loops or [])
    counts = (
        (dropped, "edges to unknown nodes dropped"),
        (len(report.empty_relations or []), "relations without objects"),
        (report.missing_days or 0, "days without objects"),
        (filled, "new nodes without a row of the model's table"),
        (merged, "nodes with several self-loops, of which one counts"),
    )
    return "".join(f"; {what}: {count:,}" for count, what in counts if count)


def _resumed(report: RunStatus | None) -> str:
    """After which layer of an earlier attempt the run went on."""
    if report is None or not report.resumed_layer:
        return ""
    return f"; resumed after layer {report.resumed_layer}, which an earlier attempt had kept"


def _refreshed(report: RunStatus | None) -> str:
    """How many rows were computed, or why all were; "" where no rows were kept to take over."""
    if report is None:
        return ""
    if report.refreshed_rows is not None:
        return f"; computed {report.refreshed_rows:,} rows, and took over the others, unchanged"
    return f"; computed all rows: {report.full_run}" if report.full_run else ""


def _output_object(output: OutputReport, uri: str) -> dict[str, Any]:
    """``status.output``."""
    found = OutputStatus(
        version=output.version,
        uri=uri,
        rows=output.rows,
        dim=output.dim,
        types=output.types or None,
        summary=_by_type(output) if output.types else f"{output.rows} x {output.dim}",
        manifest_digest=output.manifest_digest,
        confirmed=output.confirmed or None,
        held=output.held,
    )
    return found.to_object()


def _contents(output: OutputReport) -> str:
    """What a version holds, as a message says it."""
    if not output.types:
        return f"{output.rows} rows x {output.dim}"
    return f"{output.rows} rows ({_by_type(output)})"


def _by_type(output: OutputReport) -> str:
    """Such as ``item 40 x 6, user 61 x 6``; of many types the first ones by name."""
    types = sorted(output.types or [], key=lambda of_type: of_type.name)
    shown = [f"{of_type.name} {of_type.rows} x {of_type.dim}" for of_type in types]
    if len(shown) > _MOST_TYPES_SHOWN:
        shown[_MOST_TYPES_SHOWN:] = [f"{len(shown) - _MOST_TYPES_SHOWN} more"]
    return ", ".join(shown)


def _complete(seen: Observed, draft: Draft) -> Decision:
    """The version is published: the job is complete, and its pods are stopped."""
    draft["phase"], draft["completionTime"] = "Succeeded", timestamp(draft.now)
    draft["attemptStartTime"] = draft["retryTime"] = draft["obstacle"] = None
    draft.drop("Failed")
    draft.drop("Suspended")
    draft.set("Progressing", False, "Complete", "the version is published")
    before = draft.condition("Published").get("reason")
    reason = before if before in (CONFIRMED, HELD) else "Published"
    draft.set("Complete", True, reason, f"version {draft['output']['version']}")
    draft.add_event("Completed", f"attempt {draft['attempt']} succeeded; the workers are stopped")
    return stop_pods(seen, draft)
