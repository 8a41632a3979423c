"""One attempt under way: plan it, have its children, follow it to its end."""

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
from embertide_operator.decision import Decision, count_workers, is_stuck, pod_deletion, stop_pods
from embertide_operator.failures import Failure, first_failure, obstacle
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
REFUSED = "ChildRefused"
"""Why workers are not ready while the API server does not take one of our objects."""


def advance(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Decision | Failure:
    """The next step of an attempt, or why it is over."""
    number = draft["attempt"]
    statefulset = seen.children.get("StatefulSet")
    if statefulset is not None and _runs(statefulset, number) and not _is_of(statefulset, job):
        return Failure("SpecChanged", "the spec was changed; the workers start anew")
    old = [pod for pod in seen.pods if attempt_of(pod) != number]
    if old:
        decision = stop_pods(seen, draft)
        decision.requeue_after = 1.0
        return decision
    planned = _plan(seen, job, settings, draft)
    if not isinstance(planned, Attempt):
        return planned
    wanted = [c for c in children(job, planned, settings) if _differs(c, seen)]
    report = seen.report
    # What happens to workers after that is of no interest.
    if report is not None and report.state == "succeeded" and report.output is not None:
        return _complete(seen, draft, report)
    workers = seen.workers
    if (failure := first_failure(workers, draft.now)) is not None:
        return failure
    _follow(seen, planned, draft)
    if (late := _stalled(job, draft)) is not None:
        return late
    stuck = [pod_deletion(pod, force=True) for pod in workers if is_stuck(pod, draft)]
    return Decision(draft, apply=wanted, delete=stuck, requeue_after=_pause(draft))


def _runs(statefulset: Object, number: int) -> bool:
    """Whether the StatefulSet is at this attempt, with pods."""
    at = label(statefulset, LABEL_ATTEMPT)
    return at == str(number) and bool(statefulset["spec"]["replicas"] > 0)


def _is_of(statefulset: Object, job: EmbeddingJob) -> bool:
    """Whether the workers were started with what the spec says now."""
    return bool(statefulset["metadata"]["annotations"].get(SPEC_HASH) == spec_hash(job))


def _differs(child: Object, seen: Observed) -> bool:
    """Whether a child has to be applied. What is not in sight was there before the others."""
    found = seen.children.get(child["kind"])
    if found is None:
        return "StatefulSet" not in seen.children or seen.all_children
    annotations = found["metadata"].get("annotations") or {}
    same = annotations.get(APPLIED_HASH) == child["metadata"]["annotations"][APPLIED_HASH]
    replicas = child.get("spec", {}).get("replicas")
    return not same or found.get("spec", {}).get("replicas") != replicas


def _plan(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Attempt | Decision | Failure:
    """The attempt with its grid and memory, planned by a pod where the job leaves them open."""
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
        return _have_planner(seen, job, settings, draft, pods)
    draft["plan"] = {
        "grid": str(result.grid),
        "replicas": result.grid.workers,
        "memoryPerWorkerBytes": result.memory_per_worker_bytes,
        "bytesExchanged": result.bytes_exchanged,
    }
    draft["phase"] = "Starting"
    mebibytes = result.memory_per_worker_bytes >> 20
    draft.add_event("Planned", f"grid {draft['plan']['grid']}, {mebibytes} MiB for each worker")
    return Decision(draft, delete=[pod_deletion(pod) for pod in pods], requeue_after=0.0)


def _given_plan(job: EmbeddingJob, grid: GridShape) -> Object:
    plan = {"grid": str(grid), "replicas": grid.workers}
    return {**plan, "memoryPerWorkerBytes": int(quantity(memory_given(job)))}


def _attempt(seen: Observed, draft: Draft, grid: GridShape, memory: int | None) -> Attempt:
    versions = draft["versions"]
    uid = seen.job["metadata"]["uid"]
    earlier = tuple(versions[:-1])
    return Attempt(uid, draft["attempt"], versions[-1], earlier, grid, memory)


def _have_planner(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, pods: list[Object]
) -> Decision | Failure:
    """Apply the planner's pod, or wait for it."""
    draft["phase"] = "Planning"
    if draft.seconds_since("attemptStartTime") > job.spec.pre_running_deadline_seconds:
        return _never_ran(job, obstacle(pods, 1, "")[1])
    reason, message = obstacle(pods, 1, "") if pods else ("Planning", "the planner is started")
    if draft.condition("WorkersReady").get("reason") != REFUSED or pods:
        draft.set("WorkersReady", False, reason, message)
    attempt = _attempt(seen, draft, GridShape(), None)
    configuration = children(job, attempt, settings)[0]
    wanted = [configuration] if _differs(configuration, seen) else []
    if not pods:
        wanted.append(planner(job, attempt, settings))
    return Decision(draft, apply=wanted, requeue_after=_STARTING_SECONDS)


def _read_plan(pod: Object) -> PlanResult | Failure | None:
    """What the planner's pod came to; None while it works."""
    end = (container_status(pod).get("state") or {}).get("terminated")
    name = pod["metadata"]["name"]
    if end is None:
        if (pod.get("status") or {}).get("phase") == "Failed":
            return Failure("PlannerFailed", "the planner's pod was ended by its node", name)
        return None
    text = end.get("message") or ""
    if end["exitCode"] == 0 and (plan := PlanResult.parse(text)) is not None:
        return plan
    word = Ending.parse(text)
    if word is not None:
        return Failure(word.reason, word.message, name, end["exitCode"], word.permanent)
    if end.get("reason") == "OOMKilled":
        return Failure("OutOfMemory", "the planner ran out of memory", name, end["exitCode"])
    message = f"the planner ended with exit code {end['exitCode']}"
    return Failure("PlannerFailed", f"{message}: {text.strip()}", name, end["exitCode"])


def _follow(seen: Observed, attempt: Attempt, draft: Draft) -> None:
    """Workers, their readiness and progress."""
    wanted = attempt.grid.workers
    ready = count_workers(seen.workers, wanted, draft)
    if ready == wanted:
        if draft.set("WorkersReady", True, "AllReady", f"{ready} of {ready} workers are ready"):
            draft.add_event("WorkersReady", f"{ready} workers are ready")
    elif "StatefulSet" in seen.children or draft.condition("WorkersReady").get("reason") != REFUSED:
        draft.set("WorkersReady", False, *obstacle(seen.workers, wanted, seen.pod_creation_error))
    report = seen.report
    if report is None or report.progress is None:
        if draft["phase"] != "Running":
            draft["phase"] = "Starting"
        return
    draft["phase"] = "Running"
    _progress(report.progress, draft)


def _progress(report: ProgressReport, draft: Draft) -> None:
    """Take over rank 0's progress, seldom when nothing but the clock has moved."""
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
    """The version is published: say so, and give the resources back."""
    output = report.output
    assert output is not None
    if report.progress is not None:
        _progress(report.progress, draft)
    draft["output"] = output.model_dump(by_alias=True, exclude={"current"})
    draft["phase"], draft["completionTime"] = "Succeeded", timestamp(draft.now)
    draft["attemptStartTime"] = None
    where = f"{output.rows} rows x {output.dim} at {output.uri}"
    draft.set("Published", True, "Published" if output.current else "NotCurrent", where)
    draft.set("Progressing", False, "Complete", "the version is published")
    draft.set("Complete", True, "Published", f"version {output.version}")
    draft.add_event("Published", f"version {output.version}: {where}")
    draft.add_event("Completed", f"attempt {draft['attempt']} is done; the workers are stopped")
    return stop_pods(seen, draft)


def check_deadline(job: EmbeddingJob, draft: Draft) -> Failure | None:
    """The job as a whole has taken too long."""
    limit = job.spec.active_deadline_seconds
    if limit is None or draft.seconds_since("startTime") <= limit:
        return None
    return Failure(
        "DeadlineExceeded", f"the job took longer than spec.activeDeadlineSeconds, {limit} s"
    )


def _stalled(job: EmbeddingJob, draft: Draft) -> Failure | None:
    """The workers never ran, or run but get nowhere."""
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
    where = progress.get("stage") or "the start"
    message = f"no progress in {where} for spec.progressDeadlineSeconds, {limit} s"
    return Failure("ProgressDeadlineExceeded", message)


def _never_ran(job: EmbeddingJob, why: str) -> Failure:
    limit = job.spec.pre_running_deadline_seconds
    return Failure(
        "PreRunningDeadlineExceeded",
        f"the workers were not running within spec.preRunningDeadlineSeconds, {limit} s: {why}",
        permanent=True,
    )


def _pause(draft: Draft) -> float:
    if draft["phase"] != "Running":
        return _STARTING_SECONDS
    nearly = (draft["progress"] or {}).get("percent", 0) >= _NEARLY_DONE_PERCENT
    return _NEARLY_DONE_SECONDS if nearly else _RUNNING_SECONDS
