"""A published version into the index of ``spec.push``: after the job is complete, by a pod.

Readers of the output have the version by then, so nothing that happens here changes that: the job
stays complete, and the condition Pushed tells of the index.

    nothing asked for          no condition
    held, or not current       Pushed=False; nothing is loaded
    asked for                  wait until the workers are gone; then a pod loads, verifies, switches
    it ended                   Pushed=True, a retry after a back-off, or Pushed=False for good

``status.push.request`` is a hash of what was asked for. Another ``spec.push``, or another value of
the annotation, is another request: so one pushes again after a failure, a release or a rollback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import PushReport
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.decide.decision import Decision, is_stuck, pod_deletion, stop_pods
from embertide_operator.decide.planning import needs_apply, new_attempt
from embertide_operator.decide.push_ends import (
    end_push,
    note_attempt_failed,
    note_obstacle,
    note_pushed,
    read_push,
)
from embertide_operator.decide.validate import read_job
from embertide_operator.job.conditions import HELD, NOT_CURRENT
from embertide_operator.job.failures import Failure
from embertide_operator.job.observe import Observed, label, output_of
from embertide_operator.job.status import Draft, timestamp
from embertide_operator.pods.children import (
    config_map,
    network_policy,
    push_request,
    pusher,
    with_applied_hash,
)

PUSHING = "Pushing"
_POD_SECONDS = 5.0
"""How often a pod that pushes is looked at without an event."""
_GONE_SECONDS = 1.0
_ENDED = ("Succeeded", "Failed")
_MARGIN_SECONDS = 0.1
_NOT_NOW = {
    HELD: "the version is held, so it is not pushed; embertide release, then {how}",
    NOT_CURRENT: "another version is current, so this one is not pushed; {how} pushes that one",
}
_WAITS = "waiting for the push of {job}, which has the same output"
_HOW = f"kubectl annotate --overwrite ej {{name}} {naming.PUSH_REQUESTED}=TIME"


def push_version(seen: Observed, settings: Settings, draft: Draft) -> Decision | None:
    """What to do about the index; None where nothing is left to do, or nothing was asked for."""
    if not draft.is_true("Complete") or not seen.job["spec"].get("push"):
        draft.drop("Pushed")
        draft["push"] = None
        return None
    job = read_job(seen.job, settings)
    if not isinstance(job, EmbeddingJob):
        draft.set("Pushed", False, "InvalidSpec", "; ".join(f"{at}: {why}" for at, why in job))
        return None
    asked = _asked(seen.job)
    request = push_request(job, asked)
    if (draft["push"] or {}).get("request") != request:
        _begin(draft, request)
        if not asked and (reason := _why_not_now(draft)) is not None:
            how = _HOW.format(name=job.metadata.name)
            end_push(draft, reason, _NOT_NOW[reason].format(how=how))
    if draft["push"].get("completionTime"):
        return None
    workers = seen.without_pushers()
    stopping = stop_pods(workers, draft)
    if workers.pods or stopping.scale_to_zero is not None:
        return stopping
    return _go_on(seen, job, settings, draft, request)


def is_unsettled(job: Object) -> bool:
    """Whether a finished job may still have a version to push."""
    push = (job.get("status") or {}).get("push")
    return bool(job["spec"].get("push")) and not (push or {}).get("completionTime")


def other_pusher(
    job: Object, jobs: Iterable[Object], pods_of: Callable[[Object], list[Object]]
) -> str:
    """The job of the same output whose pod pushes now: two would load the same table.

    Args:
        pods_of: the pods of a job: one may still run whose push was replaced or is over.
    """
    output, uid = output_of(job), job["metadata"]["uid"]
    others = (item for item in jobs if item["metadata"]["uid"] != uid)
    busy = (item for item in others if _is_pushing(item) or _pushes(pods_of(item)))
    first = next((item for item in busy if output_of(item) == output), None)
    if first is None:
        return ""
    return f"{first['metadata']['namespace']}/{first['metadata']['name']}"


def _is_pushing(job: Object) -> bool:
    push = (job.get("status") or {}).get("push") or {}
    return is_unsettled(job) and bool(push.get("startTime"))


def _pushes(pods: Iterable[Object]) -> bool:
    """Whether a pod among them may still write to the index."""
    pushers = (pod for pod in pods if label(pod, naming.LABEL_ROLE) == naming.ROLE_PUSHER)
    return any((pod.get("status") or {}).get("phase") not in _ENDED for pod in pushers)


def _asked(job: Object) -> str:
    annotations = job["metadata"].get("annotations") or {}
    return str(annotations.get(naming.PUSH_REQUESTED, ""))


def _begin(draft: Draft, request: str) -> None:
    """Another push; what readers of the index have is known until it ends."""
    kept = ("version", "pushedTime", "rows", "seconds", "names")
    old = draft["push"] or {}
    begun = {"request": request, "requestTime": timestamp(draft.now)}
    draft["push"] = begun | {name: old[name] for name in kept if name in old}
    draft.set("Pushed", False, PUSHING, "the version is being pushed")


def _why_not_now(draft: Draft) -> str | None:
    """The reason of Published for which the job's own version is not pushed."""
    reason = draft.condition("Published").get("reason")
    return reason if reason in _NOT_NOW else None


def _go_on(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, request: str
) -> Decision:
    """Create the pod, follow it, and see how it ended."""
    pod = next(iter(seen.pushers()), None)
    if pod is None:
        return _create(seen, job, settings, draft, request)
    if pod["metadata"].get("deletionTimestamp"):
        forced = [pod_deletion(pod, force=True)] if is_stuck(pod, seen, draft) else []
        return Decision(draft, delete=forced, requeue_after=_GONE_SECONDS)
    if label(pod, naming.LABEL_PUSH) != request:
        return Decision(draft, delete=[pod_deletion(pod)], requeue_after=_GONE_SECONDS)
    result = read_push(pod)
    if result is None:
        result = _follow(pod, seen, job, draft)
    if result is None:
        return Decision(draft, requeue_after=_POD_SECONDS)
    if isinstance(result, PushReport):
        note_pushed(result, draft, _HOW.format(name=job.metadata.name))
    else:
        note_attempt_failed(result, job, settings, draft, _HOW.format(name=job.metadata.name))
    return Decision(draft, delete=[pod_deletion(pod)], requeue_after=_GONE_SECONDS)


def _create(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, request: str
) -> Decision:
    """The pod, with what it needs of the job's objects, once the back-off is over."""
    if seen.pushing_job:
        if draft.condition("Pushed")["reason"] == PUSHING:
            draft.set("Pushed", False, PUSHING, _WAITS.format(job=seen.pushing_job))
        return Decision(draft, requeue_after=_POD_SECONDS)
    left = -draft.seconds_since_time(draft["push"].get("retryTime") or timestamp(draft.now))
    if left > 0:
        return Decision(draft, requeue_after=left + _MARGIN_SECONDS)
    late = _check_start(job, draft, "its pod could not be created")
    if late is not None:
        note_attempt_failed(late, job, settings, draft, _HOW.format(name=job.metadata.name))
        return Decision(draft, requeue_after=_GONE_SECONDS)
    draft["push"] = {"startTime": timestamp(draft.now)} | draft["push"]
    draft["push"].pop("retryTime", None)
    attempt = new_attempt(seen, draft)
    needed = [with_applied_hash(config_map(job, attempt.uid))]
    if settings.network_policy:
        needed.append(with_applied_hash(network_policy(job, attempt.uid, settings)))
    version = "" if _asked(seen.job) else draft["output"]["version"]
    wanted = [child for child in needed if needs_apply(child, seen)]
    wanted.append(pusher(job, attempt, settings, version, request))
    return Decision(draft, apply=wanted, requeue_after=_POD_SECONDS)


def _follow(pod: Object, seen: Observed, job: EmbeddingJob, draft: Draft) -> Failure | None:
    """A pod that has not ended: what keeps it from starting, for as long as that may last."""
    trouble = note_obstacle(pod, seen.mount_error, draft)
    return None if trouble is None else _check_start(job, draft, trouble)


def _check_start(job: EmbeddingJob, draft: Draft, why: str) -> Failure | None:
    limit = job.spec.pre_running_deadline_seconds
    started = draft["push"].get("startTime")
    if started is None or draft.seconds_since_time(started) <= limit:
        return None
    message = f"the push was not running within spec.preRunningDeadlineSeconds, {limit} s: {why}"
    return Failure("PreRunningDeadlineExceeded", message)
