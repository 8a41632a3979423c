"""Waiting for the inputs of a job, before its first attempt.

The operator has no credentials of stores, so a pod of the job looks, once, and ends. Its
termination message says what is missing; the status keeps that, and when the next pod looks.
Between two looks the job has no pod, so it takes no room, quota or node, however long it waits, and
an operator that is replaced meanwhile goes on from the status.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.readiness import look_again_seconds
from embertide.spec.reports import Ending, InputsReport, MissingInput, awaited
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.decide.decision import Decision, is_stuck, is_terminating, pod_deletion
from embertide_operator.decide.obstacles import check_obstacle, clear_obstacle, note_obstacle
from embertide_operator.decide.planning import needs_apply, new_attempt
from embertide_operator.job.failures import Failure, exit_text, reported_failure, why_not_running
from embertide_operator.job.observe import Observed, container_status
from embertide_operator.job.status import Draft, parse_time, timestamp
from embertide_operator.pods.children import children, looker

NOT_READY = "InputsNotReady"
_POD_SECONDS = 2.0
"""How soon a pod that looks, or that is being removed, is looked at again."""
_MARGIN_SECONDS = 0.1

Look = list[MissingInput] | Failure | None
"""What a pod saw: what is missing, [] for nothing; a failure; None while it has not answered."""


def await_inputs(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Decision | Failure | None:
    """The decision about a job whose inputs are not known to be ready; None once they are.

    A failure ends the job: inputs that did not come in time, or that cannot be looked at.
    """
    if not job.spec.waits or (draft["inputs"] or {}).get("readyTime"):
        return None
    if draft["inputs"] is None:
        draft["inputs"] = {"since": timestamp(draft.now), "looks": 0}
    draft["phase"] = "Waiting"
    pod = next(iter(seen.lookers()), None)
    if pod is None or is_terminating(pod):
        return _look_again(seen, job, settings, draft, pod)
    look = _read_look(pod, job)
    if look is None:
        return _follow(pod, seen, job, settings, draft)
    if isinstance(look, Failure):
        return look
    look = awaited(look, draft.seconds_since_time(draft["inputs"]["since"]))
    if look:
        _note_missing(look, draft)
        return _give_up(look, draft) or _until_next(draft, delete=pod)
    _note_ready(draft)
    return Decision(draft, delete=[pod_deletion(pod)], requeue_after=0.0)


def _look_again(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, old: Object | None
) -> Decision | Failure:
    """Create a pod that looks, once it is time and the one before is gone."""
    due = draft["inputs"].get("nextLookTime")
    early = due is not None and parse_time(due) > draft.now
    if (failure := check_obstacle(draft, settings)) is not None:
        return failure
    if early or old is not None:
        decision = _until_next(draft)
        if old is not None and is_stuck(old, seen, draft):
            decision.delete.append(pod_deletion(old, force=True))
        return decision
    patience = _patience(job)
    waited = draft.seconds_since_time(draft["inputs"]["since"])
    draft["inputs"] = {
        **draft["inputs"],
        "looks": draft["inputs"].get("looks", 0) + 1,
        "nextLookTime": _next_time(draft, waited, patience),
    }
    _set_conditions(draft)
    attempt = new_attempt(seen, draft)
    configuration = children(job, attempt, settings)[0]
    wanted = [configuration] if needs_apply(configuration, seen) else []
    wanted.append(looker(job, attempt, settings))
    return Decision(draft, apply=wanted, requeue_after=_POD_SECONDS)


def _next_time(draft: Draft, waited: float, patience: int) -> str:
    """When to look next: after a pause that grows with the wait, and when patience ends."""
    pause = look_again_seconds(waited)
    if waited < patience:
        pause = min(pause, patience - waited)
    return timestamp(draft.now + timedelta(seconds=max(1.0, pause)))


def _until_next(draft: Draft, delete: Object | None = None) -> Decision:
    """Nothing to do before the next look."""
    left = -draft.seconds_since_time(draft["inputs"]["nextLookTime"]) + _MARGIN_SECONDS
    deletions = [] if delete is None else [pod_deletion(delete)]
    return Decision(draft, delete=deletions, requeue_after=max(1.0, left))


def _follow(
    pod: Object, seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Decision | Failure:
    """A pod that has not looked yet; it may not be able to start."""
    trouble = why_not_running(pod) or (
        ("FailedMount", seen.mount_error) if seen.mount_error else None
    )
    if trouble is None:
        _forget_obstacle(draft)
    else:
        note_obstacle(draft, *trouble)
        waited = draft.seconds_since_time(draft["inputs"]["since"])
        if waited > _patience(job):
            message = f"nothing could look at the inputs in time: {trouble[1]}"
            return Failure(NOT_READY, message, retryable=False)
    _set_conditions(draft)
    failure = check_obstacle(draft, settings)
    return failure or Decision(draft, requeue_after=_POD_SECONDS)


def _patience(job: EmbeddingJob) -> int:
    """Seconds for which the least patient input is waited for."""
    return min(ready.within_seconds for _, _, ready in job.spec.waits)


def _read_look(pod: Object, job: EmbeddingJob) -> Look:
    """What a pod saw; where one ended without saying, it saw nothing, and the next one may."""
    end = (container_status(pod).get("state") or {}).get("terminated")
    phase = (pod.get("status") or {}).get("phase")
    if end is None:
        why = (pod["status"].get("message") or "its node ended it") if phase == "Failed" else ""
        return [_unseen(job, f"the pod that looks ended: {why}")] if why else None
    text = end.get("message") or ""
    if end["exitCode"] == 0 and (report := InputsReport.parse(text)) is not None:
        return report.missing
    ending = Ending.parse(text)
    if ending is None:
        return [_unseen(job, f"the pod that looks {exit_text(end)}")]
    if ending.permanent:
        return reported_failure(pod, end, ending)
    return [_unseen(job, ending.message)]


def _unseen(job: EmbeddingJob, why: str) -> MissingInput:
    """Stands for all inputs where they could not be looked at."""
    return MissingInput(
        field=job.spec.waits[0][0],
        why=f"could not be looked at: {why}",
        within_seconds=_patience(job),
    )


def _note_missing(missing: list[MissingInput], draft: Draft) -> None:
    """Keep what is missing in the status, with an Event for other inputs than before."""
    _forget_obstacle(draft)
    inputs: dict[str, Any] = draft["inputs"]
    fields = [entry.field for entry in missing]
    text = "; ".join(f"{entry.field}: {entry.why}" for entry in missing)
    if inputs.get("fields") != fields:
        draft.add_event(NOT_READY, f"waiting for inputs: {text}")
    since = f"{parse_time(inputs['since']):%Y-%m-%d %H:%M:%SZ}"
    draft["inputs"] = {**inputs, "fields": fields, "missing": f"{text} (since {since})"}
    _set_conditions(draft)


def _give_up(missing: list[MissingInput], draft: Draft) -> Failure | None:
    """The failure of a job that has waited for an input for as long as it may."""
    waited = draft.seconds_since_time(draft["inputs"]["since"])
    late = [entry for entry in missing if waited >= entry.within_seconds]
    if not late:
        _plan_sooner(missing, waited, draft)
        return None
    text = "; ".join(f"{entry.field}: {entry.why}" for entry in late)
    message = (
        f"inputs were not ready within {late[0].within_seconds} s (ready.within): {text}. Nothing"
        " was computed, and the current version stays"
    )
    return Failure(NOT_READY, message, retryable=False)


def _plan_sooner(missing: list[MissingInput], waited: float, draft: Draft) -> None:
    """Look again when the patience with one of these ends, where that is before the next look."""
    ends = min(entry.within_seconds for entry in missing) - waited
    soonest = timestamp(draft.now + timedelta(seconds=max(1.0, ends)))
    inputs = draft["inputs"]
    draft["inputs"] = {**inputs, "nextLookTime": min(inputs["nextLookTime"], soonest)}


def _note_ready(draft: Draft) -> None:
    """All inputs are ready: the job starts like one that waits for none."""
    _forget_obstacle(draft)
    inputs = draft["inputs"]
    kept = {"since": inputs["since"], "looks": inputs["looks"]}
    draft["inputs"] = {**kept, "readyTime": timestamp(draft.now)}
    draft["phase"] = "Pending"
    message = f"all inputs are ready, after {inputs['looks']} looks"
    draft.set("InputsReady", True, "InputsReady", message)
    draft.drop("Progressing")
    draft.add_event("InputsReady", message)


def _forget_obstacle(draft: Draft) -> None:
    """A pod looks, or has looked: nothing keeps it from starting any more."""
    if draft["obstacle"] is not None:
        clear_obstacle(draft)
        draft.drop("WorkersReady")


def _set_conditions(draft: Draft) -> None:
    """Say what is missing, and that the job does not go on for that reason."""
    message = draft["inputs"].get("missing") or "the first look at the inputs is being taken"
    draft.set("InputsReady", False, NOT_READY, message)
    draft.set("Progressing", False, NOT_READY, message)
