"""The plan of an attempt: its grid and memory, given by the job or computed by a planner pod."""

from __future__ import annotations

from typing import Any

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import Ending, PlanResult
from embertide_operator.api.quantities import quantity
from embertide_operator.api.routes import Object, kind_of
from embertide_operator.config.settings import Settings
from embertide_operator.decide.deadlines import check_running
from embertide_operator.decide.decision import Decision, pod_deletion
from embertide_operator.decide.obstacles import REFUSED, check_obstacle, note_obstacle
from embertide_operator.decide.worker_limit import planned_too_many
from embertide_operator.job.disruptions import was_stopped
from embertide_operator.job.failures import (
    Failure,
    disruption_of,
    failure_of,
    why_not_running,
)
from embertide_operator.job.observe import Observed, container_status
from embertide_operator.job.sidecars import other_trouble
from embertide_operator.job.status import Draft
from embertide_operator.pods.children import (
    APPLIED_HASH,
    children,
    needs_plan,
    planner,
)
from embertide_operator.pods.defaults import memory_of
from embertide_operator.pods.drift import was_changed
from embertide_operator.pods.worker_pods import Attempt

STARTING_SECONDS = 2.0
"""How often pods that are not running yet are looked at."""


def plan_attempt(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft
) -> Attempt | Decision | Failure:
    """The attempt with its grid and memory; a planner pod computes what the job does not set."""
    plan = draft["plan"]
    given = job.spec.workers.grid
    if plan is None and not needs_plan(job, settings) and isinstance(given, GridShape):
        plan = _given_plan(given, memory_of(job, settings))
        draft["plan"] = plan
    if plan is not None:
        grid = GridShape.parse(plan["grid"])
        memory = plan.get("memoryPerWorkerBytes") if memory_of(job, settings) is None else None
        return _attempt(seen, draft, grid, memory)
    pods = seen.planners()
    result = _read_plan(pods[0]) if pods else None
    if isinstance(result, Failure):
        return result
    if result is None:
        return _run_planner(seen, job, settings, draft, pods)
    if (failure := planned_too_many(result.grid, settings)) is not None:
        return failure
    # Still Planning: the next pass starts the workers, where there is room for so many.
    draft["plan"] = {
        "grid": str(result.grid),
        "replicas": result.grid.workers,
        "memoryPerWorkerBytes": result.memory_per_worker_bytes,
        **({"scratchBytesPerWorker": result.scratch_bytes} if result.scratch_bytes else {}),
        "bytesExchanged": result.bytes_exchanged,
        **({"tables": result.tables} if result.tables else {}),
    }
    draft.add_event("Planned", _planned(result))
    return Decision(draft, delete=[pod_deletion(pod) for pod in pods], requeue_after=0.0)


def _planned(result: PlanResult) -> str:
    """The event's message."""
    message = f"grid {result.grid}, {result.memory_per_worker_bytes >> 20} MiB per worker"
    if result.scratch_bytes:
        message += f", and {result.scratch_bytes >> 20} MiB of scratch for tensors on disk"
    return message


def _given_plan(grid: GridShape, memory: Any) -> Object:
    plan = {"grid": str(grid), "replicas": grid.workers}
    return {**plan, "memoryPerWorkerBytes": int(quantity(memory))}


def new_attempt(seen: Observed, draft: Draft) -> Attempt:
    """An attempt that is not planned, for objects of a job that do not depend on its plan."""
    return Attempt(
        uid=seen.job["metadata"]["uid"],
        number=draft["attempt"],
        version="",
        earlier=(),
        grid=GridShape(),
    )


def _attempt(seen: Observed, draft: Draft, grid: GridShape, memory: int | None) -> Attempt:
    versions = draft["versions"]
    return Attempt(
        uid=seen.job["metadata"]["uid"],
        number=draft["attempt"],
        version=versions[-1],
        earlier=tuple(versions[:-1]),
        grid=grid,
        memory=memory,
        scratch=draft["plan"].get("scratchBytesPerWorker") or 0,
        tables=draft["plan"].get("tables") or {},
    )


def _run_planner(
    seen: Observed, job: EmbeddingJob, settings: Settings, draft: Draft, pods: list[Object]
) -> Decision | Failure:
    """Create the planner's pod, or wait for it."""
    draft["phase"] = "Planning"
    if draft.condition("WorkersReady").get("reason") != REFUSED or pods:
        note_obstacle(draft, *_planner_state(pods, seen.mount_error))
    why = draft.condition("WorkersReady")["message"]
    failure = check_obstacle(draft, settings) or check_running(seen, job, draft, why)
    if failure is not None:
        return failure
    attempt = new_attempt(seen, draft)
    configuration = children(job, attempt, settings)[0]
    wanted = [configuration] if needs_apply(configuration, seen) else []
    if not pods:
        wanted.append(planner(job, attempt, settings))
    return Decision(draft, apply=wanted, requeue_after=STARTING_SECONDS)


def needs_apply(child: Object, seen: Observed) -> bool:
    """Whether a child is missing, or differs in a field that the operator sets."""
    found = seen.children.get(kind_of(child))
    if found is None:
        return True
    annotations = found["metadata"].get("annotations") or {}
    same = annotations.get(APPLIED_HASH) == child["metadata"]["annotations"][APPLIED_HASH]
    replicas = child.get("spec", {}).get("replicas")
    if not same or found.get("spec", {}).get("replicas") != replicas:
        return True
    return was_changed(child, found)


def _planner_state(pods: list[Object], mount_error: str) -> tuple[str, str]:
    """(reason, message) of ``WorkersReady`` during planning."""
    if not pods:
        return "Planning", "the planner's pod is being created"
    if (found := why_not_running(pods[0])) is not None:
        return found
    if mount_error:
        return "FailedMount", mount_error
    return "Planning", "the planner reads the inputs' metadata"


def _read_plan(pod: Object) -> PlanResult | Failure | None:
    """The result of the planner's pod; None while it runs."""
    end = (container_status(pod).get("state") or {}).get("terminated")
    name = pod["metadata"]["name"]
    text = (end or {}).get("message") or ""
    plan, ending = PlanResult.parse(text), Ending.parse(text)
    disruption = disruption_of(pod)
    if disruption and (end is None or (was_stopped(end) and plan is None and ending is None)):
        return disruption
    if end is None:
        if (pod.get("status") or {}).get("phase") == "Failed":
            _, message = other_trouble(pod) or ("", "its node terminated the pod")
            return Failure("PlannerFailed", f"the planner: {message}", worker=name)
        return None
    if end["exitCode"] == 0 and plan is not None:
        return plan
    return failure_of(pod, end, "PlannerFailed")
