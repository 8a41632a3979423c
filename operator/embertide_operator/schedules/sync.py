"""The schedules of the watched namespaces, and the EmbeddingSchedule beside each CronJob.

They are listed every few seconds, not watched: a schedule changes at its firings, and rights to
list are all that this needs. Where the operator lacks them, or the cluster the definition,
schedules are not shown, one warning is logged, and jobs are looked after as ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from embertide.spec import naming
from embertide.spec.schedule_status import CLASS_ANNOTATION, KIND
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.store import Name, name_of
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.job.events import event_object
from embertide_operator.job.failures import exit_text, why_not_running
from embertide_operator.job.observe import condition
from embertide_operator.job.status import PendingEvent
from embertide_operator.schedules.state import ScheduleFacts, next_status

_JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
_SUBMIT = "submit"
"""The name of the container that submits."""

log = logging.getLogger("embertide")


@dataclass
class Schedules:
    """What is known of every schedule; one thread looks, any may read ``statuses``.

    Attributes:
        jobs: all EmbeddingJobs, as they were last seen.
        may_write: asked before every write.
        statuses: of each schedule, by namespace and name.
    """

    api: KubernetesApi
    settings: Settings
    jobs: Callable[[], Iterable[Object]]
    may_write: Callable[[], bool]
    statuses: dict[Name, Object] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)

    def look(self, now: datetime) -> None:
        """Read the schedules, and write what has changed of their statuses."""
        statuses: dict[Name, Object] = {}
        jobs = list(self.jobs())
        for namespace in self.settings.namespaces or ("",):
            cron_jobs = self._list("CronJob", namespace) or []
            ours = [item for item in cron_jobs if self._is_ours(item)]
            if ours:
                statuses |= self._look_at(ours, namespace, jobs, now)
        self.statuses = statuses

    def _is_ours(self, cron_job: Object) -> bool:
        """Whether jobs of a schedule have this operator's class."""
        annotations = cron_job["metadata"].get("annotations") or {}
        return bool(annotations.get(CLASS_ANNOTATION, "") == self.settings.operator_class)

    def _look_at(
        self, cron_jobs: list[Object], namespace: str, jobs: list[Object], now: datetime
    ) -> dict[Name, Object]:
        batch = self._list("Job", namespace) or []
        shown = self._list(KIND, namespace)
        known = {name_of(item): item for item in shown or []}
        statuses = {}
        for cron_job in cron_jobs:
            name = name_of(cron_job)
            near = [job for job in jobs if job["metadata"]["namespace"] == name[0]]
            near_batch = [job for job in batch if job["metadata"]["namespace"] == name[0]]
            facts = ScheduleFacts.of(cron_job, near_batch, near)
            old = (known.get(name) or {}).get("status") or self.statuses.get(name) or {}
            status = statuses[name] = next_status(facts, old, now, self._why)
            if status != old:
                self._tell(cron_job, old, status, now)
                if shown is not None:
                    self._show(cron_job, known.get(name), status)
        return statuses

    def _list(self, kind: str, namespace: str) -> list[Object] | None:
        """All of a kind that have to do with schedules; None where they cannot be had."""
        labels = "" if kind == KIND else naming.LABEL_SCHEDULE
        try:
            return self.api.read_all(kind, namespace, labels=labels)[0]
        except ApiError as error:
            if error.retryable:
                raise
            self._warn(kind, error)
            return None

    def _warn(self, kind: str, error: ApiError) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("schedules are not shown, %s cannot be listed: %s", kind, error)

    def _tell(self, cron_job: Object, old: Object, status: Object, now: datetime) -> None:
        """An Event about the CronJob when a firing made no job."""
        submitted = condition({"status": status}, "Submitted")
        before = condition({"status": old}, "Submitted")
        again = before.get("status") == "False" and old.get("judgedTime") == status["judgedTime"]
        if submitted["status"] != "False" or again or not self.may_write():
            return
        event = PendingEvent("Warning", submitted["reason"], submitted["message"])
        log.info("%s/%s: %s: %s", *name_of(cron_job), event.reason, event.message)
        try:
            self.api.create_event(event_object(cron_job, event, now))
        except ApiError as error:
            log.warning("cannot create an Event: %s", error)

    def _show(self, cron_job: Object, shown: Object | None, status: Object) -> None:
        """Write the object beside the CronJob, which goes with it."""
        if not self.may_write():
            return
        try:
            if shown is None:
                shown = self.api.apply(schedule_object(cron_job))
            self.api.write_schedule_status(shown, status)
        except ApiError as error:
            if error.retryable:
                raise
            self._warn(KIND, error)

    def _why(self, job: Object) -> str:
        """Why a Job of the batch API has no pod that succeeds, as its pods or Events say."""
        meta = job["metadata"]
        selector = f"{_JOB_NAME_LABEL}={meta['name']}"
        pods = self.api.read_all("Pod", meta["namespace"], labels=selector)[0]
        newest = max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
        if newest is not None:
            return _why_pod(newest)
        events = self.api.events_about(meta["namespace"], meta["uid"], "FailedCreate")
        last = max(events, key=lambda event: event.get("lastTimestamp") or "", default=None)
        if last is not None:
            return str(last["message"])
        failed = condition(job, "Failed").get("message")
        return str(failed or "it has no pod, and no Event says why")


def _why_pod(pod: Object) -> str:
    """Why a pod that submits has not: the last lines of its log, or what keeps it from starting."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    end: dict[str, Any] = next(
        (s["state"]["terminated"] for s in statuses if "terminated" in (s.get("state") or {})), {}
    )
    if end:
        lines = (end.get("message") or "").strip().splitlines()
        return " ".join(line.strip() for line in lines) or exit_text(end)
    trouble = why_not_running(pod) or _waiting(statuses)
    return trouble[1] if trouble else f"pod {pod['metadata']['name']} has not ended"


def _waiting(statuses: list[Object]) -> tuple[str, str] | None:
    """(reason, message) of a container that cannot start."""
    for status in statuses:
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return waiting["reason"], str(waiting.get("message") or waiting["reason"])
    return None


def schedule_object(cron_job: Object) -> Object:
    """The EmbeddingSchedule of a CronJob, without its status."""
    meta = cron_job["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "apiVersion": f"{naming.GROUP}/{naming.API_VERSION_NAME}",
        "kind": KIND,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {naming.LABEL_SCHEDULE: meta["name"]},
            "ownerReferences": [owner],
        },
    }
