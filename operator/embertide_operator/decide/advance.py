"""The next step of a running attempt: plan it, apply its children, track its workers."""

from __future__ import annotations

from embertide.spec.manifest import EmbeddingJob
from embertide.spec.naming import LABEL_ATTEMPT
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.decide.deadlines import blocks_evictions, check_progress
from embertide_operator.decide.decision import (
    Decision,
    child_deletion,
    is_stuck,
    is_terminating,
    pod_deletion,
    stop_pods,
)
from embertide_operator.decide.obstacles import check_obstacle
from embertide_operator.decide.planning import STARTING_SECONDS, needs_apply, plan_attempt
from embertide_operator.decide.pod_identity import find_lost, remember, workers_of
from embertide_operator.decide.tracking import track_workers
from embertide_operator.job.failures import Failure, first_failure
from embertide_operator.job.observe import Observed, attempt_of, label
from embertide_operator.job.status import Draft
from embertide_operator.pods.children import BUDGET, SPEC_HASH, children, spec_hash
from embertide_operator.pods.worker_pods import Attempt

_RUNNING_SECONDS = 2.0
_NEARLY_DONE_SECONDS = 0.7
_NEARLY_DONE_PERCENT = 80
_OLD_PODS_SECONDS = 1.0


def advance(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Decision | Failure:
    """The next decision about an attempt, or why it has failed."""
    number = draft["attempt"]
    statefulset = seen.children.get("StatefulSet")
    if (
        statefulset is not None
        and _runs(statefulset, number)
        and not _has_spec_of(statefulset, job)
    ):
        return Failure("SpecChanged", "the spec changed; the workers are restarted")
    old = [pod for pod in seen.pods if attempt_of(pod) != number]
    if old:
        decision = stop_pods(seen, draft)
        decision.requeue_after = _OLD_PODS_SECONDS
        return decision
    planned = plan_attempt(seen, job, settings, draft)
    if not isinstance(planned, Attempt):
        return planned
    unwanted = [] if blocks_evictions(settings, draft) else [BUDGET]
    wanted = [
        child
        for child in children(job, planned, settings)
        if child["kind"] not in unwanted and needs_apply(child, seen)
    ]
    workers = workers_of(seen, planned)
    lost = find_lost(seen, planned, draft)
    if (failure := first_failure(workers, draft.now, lost)) is not None:
        return failure
    remember(seen, planned, draft)
    track_workers(seen, workers, planned.grid.workers, draft, settled=not wanted)
    failure = check_obstacle(draft, settings) or check_progress(seen, job, draft)
    if failure is not None:
        return failure
    stuck = [pod_deletion(pod, force=True) for pod in workers if is_stuck(pod, seen, draft)]
    outlived = [
        child_deletion(kind, seen.children[kind])
        for kind in unwanted
        if kind in seen.children and not is_terminating(seen.children[kind])
    ]
    decision = Decision(
        draft, apply=wanted, delete=stuck + outlived, requeue_after=_requeue_seconds(draft)
    )
    decision.reset_ports = [
        c for c in wanted if c["kind"] == "Service" and "Service" in seen.children
    ]
    return decision


def _runs(statefulset: Object, number: int) -> bool:
    """Whether the StatefulSet runs pods of this attempt."""
    attempt = label(statefulset, LABEL_ATTEMPT)
    return attempt == str(number) and bool(statefulset["spec"]["replicas"] > 0)


def _has_spec_of(statefulset: Object, job: EmbeddingJob) -> bool:
    """Whether the workers were started with the current spec."""
    return bool(statefulset["metadata"]["annotations"].get(SPEC_HASH) == spec_hash(job))


def _requeue_seconds(draft: Draft) -> float:
    if draft["phase"] != "Running":
        return STARTING_SECONDS
    nearly = (draft["progress"] or {}).get("percent", 0) >= _NEARLY_DONE_PERCENT
    return _NEARLY_DONE_SECONDS if nearly else _RUNNING_SECONDS
