"""The next step of a running attempt: plan it, apply its children, track its workers."""

from __future__ import annotations

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.naming import LABEL_ATTEMPT
from embertide.spec.reports import Ending, PlanResult, ProgressReport, WorkerStatus
from embertide_operator.children import (
    APPLIED_HASH,
    SPEC_HASH,
    children,
    memory_given,
    needs_plan,
    planner,
    spec_hash,
)
from embertide_operator.conditions import NOT_CURRENT
from embertide_operator.decision import Decision, count_workers, is_stuck, pod_deletion, stop_pods
from embertide_operator.failures import (
    Failure,
    exit_text,
    first_failure,
    reported_failure,
    why_not_ready,
    why_not_running,
)
from embertide_operator.kubernetes_api import Object
from embertide_operator.observe import Observed, attempt_of, container_status, label
from embertide_operator.pods import Attempt
from embertide_operator.quantities import quantity
from embertide_operator.settings import Settings
from embertide_operator.status import Draft, parse_time, timestamp

_STARTING_SECONDS = 2.0
_RUNNING_SECONDS = 2.0
_NEARLY_DONE_SECONDS = 0.7
_NEARLY_DONE_PERCENT = 80
_PROGRESS_EVERY_SECONDS = 5.0
"""How often a new ``lastUpdateTime`` or ETA alone is written to the status."""
_OLD_PODS_SECONDS = 1.0
REFUSED = "ChildRefused"
"""Reason of ``WorkersReady=False`` while the API server rejects a child object."""


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
    planned = _plan(seen, job, settings, draft)
    if not isinstance(planned, Attempt):
        return planned
    wanted = [c for c in children(job, planned, settings) if _needs_apply(c, seen)]
    report = seen.report
    # A published version is success, whatever happens to the workers afterwards.
    if report is not None and report.state == "succeeded" and report.output is not None:
        return _complete(seen, draft, report)
    workers = seen.workers
    if (failure := first_failure(workers, draft.now)) is not None:
        return failure
    _track_workers(seen, planned, draft)
    if (exceeded := _check_progress(job, draft)) is not None:
        return exceeded
    stuck = [pod_deletion(pod, force=True) for pod in workers if is_stuck(pod, draft)]
    return Decision(draft, apply=wanted, delete=stuck, requeue_after=_requeue_seconds(draft))


def _runs(statefulset: Object, number: int) -> bool:
    """Whether the StatefulSet runs pods of this attempt."""
    attempt = label(statefulset, LABEL_ATTEMPT)
    return attempt == str(number) and bool(statefulset["spec"]["replicas"] > 0)


def _has_spec_of(statefulset: Object, job: EmbeddingJob) -> bool:
    """Whether the workers were started with the current spec."""
    return bool(statefulset["metadata"]["annotations"].get(SPEC_HASH) == spec_hash(job))


def _needs_apply(child: Object, seen: Observed) -> bool:
    """Whether a child is missing or differs."""
    found = seen.children.get(child["kind"])
    if found is None:
        return True
    annotations = found["metadata"].get("annotations") or {}
    same = annotations.get(APPLIED_HASH) == child["metadata"]["annotations"][APPLIED_HASH]
    replicas = child.get("spec", {}).get("replicas")
    return not same or found.get("spec", {}).get("replicas") != replicas


def _plan(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Attempt | Decision | Failure:
    """The attempt with its grid and memory; a planner pod computes what the job does not set."""
    plan = draft["plan"]
    given = job.spec.workers.grid
    if plan is None and not needs_plan(job) and isinstance(given, GridShape):
        plan = _given_plan(job, given)
        draft["plan"] = plan
    if plan is not None:
        grid = GridShape.parse(plan["grid"])
        memory = plan.get("memoryPerWorkerBytes") if memory_given(job) is None else None
        return _attempt(seen, draft, grid, memory)
    pods = seen.planners()
    result = _read_plan(pods[0]) if pods else None
    if isinstance(result, Failure):
        return result
    if result is None:
        return _run_planner(seen, job, settings, draft, pods)
    draft["plan"] = {
        "grid": str(result.grid),
        "replicas": result.grid.workers,
        "memoryPerWorkerBytes": result.memory_per_worker_bytes,
        "bytesExchanged": result.bytes_exchanged,
    }
    draft["phase"] = "Starting"
    mebibytes = result.memory_per_worker_bytes >> 20
    draft.add_event("Planned", f"grid {draft['plan']['grid']}, {mebibytes} MiB per worker")
    return Decision(draft, delete=[pod_deletion(pod) for pod in pods], requeue_after=0.0)


def _given_plan(job: EmbeddingJob, grid: GridShape) -> Object:
    plan = {"grid": str(grid), "replicas": grid.workers}
    return {**plan, "memoryPerWorkerBytes": int(quantity(memory_given(job)))}


def _attempt(seen: Observed, draft: Draft, grid: GridShape, memory: int | None) -> Attempt:
    versions = draft["versions"]
    return Attempt(
        uid=seen.job["metadata"]["uid"],
        number=draft["attempt"],
        version=versions[-1],
        earlier=tuple(versions[:-1]),
        grid=grid,
        memory=memory,
    )


def _run_planner(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, pods: list[Object]
) -> Decision | Failure:
    """Create the planner's pod, or wait for it."""
    draft["phase"] = "Planning"
    reason, message = _planner_state(pods)
    if draft.seconds_since("attemptStartTime") > job.spec.pre_running_deadline_seconds:
        return _never_ran(job, message)
    if draft.condition("WorkersReady").get("reason") != REFUSED or pods:
        draft.set("WorkersReady", False, reason, message)
    attempt = _attempt(seen, draft, GridShape(), None)
    configuration = children(job, attempt, settings)[0]
    wanted = [configuration] if _needs_apply(configuration, seen) else []
    if not pods:
        wanted.append(planner(job, attempt, settings))
    return Decision(draft, apply=wanted, requeue_after=_STARTING_SECONDS)


def _planner_state(pods: list[Object]) -> tuple[str, str]:
    """(reason, message) of ``WorkersReady`` during planning."""
    if not pods:
        return "Planning", "the planner's pod is being created"
    return why_not_running(pods[0]) or ("Planning", "the planner reads the inputs' metadata")


def _read_plan(pod: Object) -> PlanResult | Failure | None:
    """The result of the planner's pod; None while it runs."""
    end = (container_status(pod).get("state") or {}).get("terminated")
    name = pod["metadata"]["name"]
    if end is None:
        if (pod.get("status") or {}).get("phase") == "Failed":
            message = "the planner's pod was terminated by its node"
            return Failure("PlannerFailed", message, worker=name)
        return None
    text = end.get("message") or ""
    if end["exitCode"] == 0 and (plan := PlanResult.parse(text)) is not None:
        return plan
    ending = Ending.parse(text)
    if ending is not None:
        return reported_failure(pod, end, ending)
    reason, message = "PlannerFailed", f"the planner {exit_text(end)}"
    if end.get("reason") == "OOMKilled":
        reason, message = "OutOfMemory", "the planner exceeded its memory limit and was killed"
    return Failure(reason, message, worker=name, exit_code=end["exitCode"])


def _track_workers(seen: Observed, attempt: Attempt, draft: Draft) -> None:
    """Update the status from the workers: readiness and progress."""
    wanted = attempt.grid.workers
    ready = count_workers(seen.workers, wanted, draft)
    if ready == wanted:
        if draft.set("WorkersReady", True, "AllReady", f"{ready} of {ready} workers are ready"):
            draft.add_event("WorkersReady", f"{ready} workers are ready")
    elif "StatefulSet" in seen.children or draft.condition("WorkersReady").get("reason") != REFUSED:
        draft.set(
            "WorkersReady", False, *why_not_ready(seen.workers, wanted, seen.pod_creation_error)
        )
    report = seen.report
    if report is None or report.progress is None:
        if draft["phase"] != "Running":
            draft["phase"] = "Starting"
        return
    draft["phase"] = "Running"
    _progress(report.progress, draft)


def _progress(report: ProgressReport, draft: Draft) -> None:
    """Update the status from rank 0's progress; less often when only times have changed."""
    new = report.model_dump(by_alias=True, exclude_none=True) | {"done": f"{report.percent}%"}
    old = draft["progress"] or {}
    if old.get("stage") != new["stage"]:
        draft.add_event("StageStarted", new["stage"])
    steps = ("stage", "layer", "layers", "percent")
    moved = any(old.get(name) != new[name] for name in steps)
    if moved or _age(old, draft) >= _PROGRESS_EVERY_SECONDS:
        draft["progress"] = new
    where = (
        f"{new['stage']}, layer {new['layer']} of {new['layers']}" if new["layer"] else new["stage"]
    )
    draft.set("Progressing", True, "Running", where)


def _age(progress: Object, draft: Draft) -> float:
    at = progress.get("lastUpdateTime")
    return (draft.now - parse_time(at)).total_seconds() if at else float("inf")


def _complete(seen: Observed, draft: Draft, report: WorkerStatus) -> Decision:
    """The version is published: the job is complete, and its pods are stopped."""
    output = report.output
    assert output is not None
    if report.progress is not None:
        _progress(report.progress, draft)
    draft["output"] = output.model_dump(by_alias=True, exclude={"current"})
    draft["report"] = report.report.to_object() if report.report is not None else None
    draft["phase"], draft["completionTime"] = "Succeeded", timestamp(draft.now)
    draft["attemptStartTime"] = None
    where = f"{output.rows} rows x {output.dim} at {output.uri}"
    draft.set("Published", True, "Published" if output.current else NOT_CURRENT, where)
    draft.set("Progressing", False, "Complete", "the version is published")
    draft.set("Complete", True, "Published", f"version {output.version}")
    draft.add_event("Published", f"version {output.version}: {where}")
    draft.add_event("Completed", f"attempt {draft['attempt']} succeeded; the workers are stopped")
    return stop_pods(seen, draft)


def check_deadline(job: EmbeddingJob, draft: Draft) -> Failure | None:
    """The failure of a job that exceeds its time limit."""
    limit = job.spec.active_deadline_seconds
    if limit is None or draft.seconds_since("startTime") <= limit:
        return None
    return Failure("DeadlineExceeded", f"the job exceeded spec.activeDeadlineSeconds, {limit} s")


def _check_progress(job: EmbeddingJob, draft: Draft) -> Failure | None:
    """The failure of workers that did not start running, or make no progress, in time."""
    ready = draft.condition("WorkersReady")
    if draft["phase"] != "Running" and ready["status"] == "False":
        if draft.seconds_since("attemptStartTime") > job.spec.pre_running_deadline_seconds:
            return _never_ran(job, ready["message"])
        return None
    progress = draft["progress"] or {}
    moments = [ready["lastTransitionTime"], progress.get("lastUpdateTime")]
    last = max(parse_time(moment) for moment in moments if moment)
    limit = job.spec.progress_deadline_seconds
    if (draft.now - last).total_seconds() <= limit:
        return None
    where = f"stage {progress['stage']}" if progress else "startup"
    message = f"no progress in {where} within spec.progressDeadlineSeconds, {limit} s"
    return Failure("ProgressDeadlineExceeded", message)


def _never_ran(job: EmbeddingJob, why: str) -> Failure:
    limit = job.spec.pre_running_deadline_seconds
    return Failure(
        "PreRunningDeadlineExceeded",
        f"the workers were not running within spec.preRunningDeadlineSeconds, {limit} s: {why}",
        retryable=False,
    )


def _requeue_seconds(draft: Draft) -> float:
    if draft["phase"] != "Running":
        return _STARTING_SECONDS
    nearly = (draft["progress"] or {}).get("percent", 0) >= _NEARLY_DONE_PERCENT
    return _NEARLY_DONE_SECONDS if nearly else _RUNNING_SECONDS
