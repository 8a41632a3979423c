"""What the workers of an attempt are doing, as the status says it: readiness, stage, progress."""

from __future__ import annotations

from embertide.spec.naming import HTTP_PORT
from embertide.spec.reports import ProgressReport
from embertide.spec.status import ProgressStatus
from embertide_operator.api.routes import Object
from embertide_operator.decide.decision import count_workers
from embertide_operator.decide.obstacles import REFUSED, clear_obstacle, note_obstacle
from embertide_operator.decide.quota_advice import with_advice
from embertide_operator.job.failures import is_ready, why_not_ready
from embertide_operator.job.observe import Observed
from embertide_operator.job.status import Draft, timestamp

UNREACHABLE = "WorkerUnreachable"
"""Reason of ``Progressing=Unknown`` while rank 0 is Ready and ``/status`` cannot be had."""
_UNREACHABLE_SECONDS = 10.0
"""How long rank 0 may not answer before that is reported: a busy one misses a question or two."""
_PROGRESS_EVERY_SECONDS = 5.0
"""How often progress within one percent is written to the status."""
_SHOWN = ("OutputInUse", "InputsNotReady", "Queued", UNREACHABLE)
"""Reasons of Progressing that stand in place of the run's stage."""
_BEFORE_MEETING = ("start", "plan")
"""Stages that rank 0 goes through before the workers have met: other pods may not exist yet."""
_STEPS = ("stage", "layer", "layers", "percent")
"""Fields of the progress that are written at once."""
_PACE = {"eta_seconds", "edges_per_second", "last_update_time"}
"""Fields that say how fast the work is, or when, and not how far."""


def track_workers(
    seen: Observed, workers: list[Object], wanted: int, draft: Draft, *, settled: bool
) -> None:
    """Update the status from the workers: readiness and progress.

    Args:
        workers: the attempt's pods.
        wanted: how many there have to be.
        settled: no object has to be applied; before, a refusal by the API server stands.
    """
    ready = count_workers(workers, wanted, draft)
    if ready == wanted:
        if settled:
            clear_obstacle(draft)
        if draft.set("WorkersReady", True, "AllReady", f"{ready} of {ready} workers are ready"):
            draft.add_event("WorkersReady", f"{ready} workers are ready")
    elif settled or draft.condition("WorkersReady").get("reason") != REFUSED:
        refused = with_advice(seen.pod_creation_error, seen.job["metadata"]["name"])
        why = why_not_ready(workers, wanted, refused, seen.mount_error)
        note_obstacle(draft, *why)
    _note_answer(seen, draft)
    report = seen.report
    if report is None or report.progress is None:
        if draft["phase"] != "Running":
            draft["phase"] = "Starting"
        return
    if seen.unreachable_seconds >= _UNREACHABLE_SECONDS:  # the report is an old one
        return
    if ready == wanted or report.progress.stage not in _BEFORE_MEETING:
        draft["phase"] = "Running"
    elif draft["phase"] != "Running":
        draft["phase"] = "Starting"
    if (draft["progress"] or {}).get("stage") != report.progress.stage:
        draft.add_event("StageStarted", report.progress.stage)
    set_progress(report.progress, draft)


def _note_answer(seen: Observed, draft: Draft) -> None:
    """Say so when rank 0 has not answered for a while, and what the user can do."""
    if seen.unreachable_seconds < _UNREACHABLE_SECONDS:
        if draft.condition("Progressing").get("reason") == UNREACHABLE and _is_over(seen, draft):
            draft.set("Progressing", True, "Running", "worker 0 could be asked again")
        return
    message = (
        f"worker 0 is ready, but its /status cannot be had: {seen.unreachable_why}. The job goes"
        f" on, and its progress is not known; allow the operator to reach port {HTTP_PORT} of the"
        " workers (NetworkPolicy), or exclude that port from the service mesh"
    )
    if draft.set("Progressing", None, UNREACHABLE, message):
        draft.add_event(UNREACHABLE, message, warning=True)


def _is_over(seen: Observed, draft: Draft) -> bool:
    """Whether rank 0 answers again or has no reason to; a new operator does not know at first."""
    pod = seen.rank_zero(draft["attempt"])
    answers = seen.report is not None and not seen.unreachable_why
    return answers or pod is None or not is_ready(pod)


def set_progress(report: ProgressReport, draft: Draft) -> None:
    """Set Progressing, and ``status.progress`` where the workers got further.

    ``lastUpdateTime`` is when the operator saw that, never a worker's time: clocks differ.
    """
    new = _progress_of(report)
    old = draft["progress"] or {}
    stepped = any(old.get(name) != new.get(name) for name in _STEPS)
    age = draft.seconds_since_time(old["lastUpdateTime"]) if old else 0.0
    if stepped or (_how_far(old) != _how_far(new) and age >= _PROGRESS_EVERY_SECONDS):
        draft["progress"] = new | {"lastUpdateTime": timestamp(draft.now)}
    where = (
        f"{new['stage']}, layer {new['layer']} of {new['layers']}" if new["layer"] else new["stage"]
    )
    draft.set("Progressing", True, "Running", where)


def set_stage(draft: Draft) -> None:
    """Set ``status.stage``, which people see first: the run's stage, or what it waits for."""
    progressing, accepted = draft.condition("Progressing"), draft.condition("Accepted")
    stage = (draft["progress"] or {}).get("stage")
    if draft.is_true("Complete"):
        draft["stage"] = stage
    elif accepted.get("status") == "False":
        draft["stage"] = accepted["reason"]
    elif draft["obstacle"] is not None and draft["phase"] != "Running":
        draft["stage"] = draft["obstacle"]["reason"]
    elif progressing.get("reason") in _SHOWN:
        draft["stage"] = progressing["reason"]
    else:
        draft["stage"] = stage


def _progress_of(report: ProgressReport) -> Object:
    """The fields that the status has, but for the time."""
    kept = ProgressStatus.model_fields.keys() - {"last_update_time"}
    new = report.model_dump(by_alias=True, exclude_none=True, include=set(kept))
    return new | {"done": f"{report.percent}%"}


def _how_far(progress: Object) -> Object:
    """Progress without its pace."""
    return ProgressStatus.model_validate(progress).model_dump(exclude=_PACE)
