"""Reconcile one job: observe, decide, write the status, then act.

The status is written first, and only if the job has not changed since it was read. So every later
action can be derived from the status again, and of two operators only one can proceed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from embertide_operator.children import child_kinds
from embertide_operator.claims import Claims
from embertide_operator.conditions import is_outdated
from embertide_operator.decision import Decision
from embertide_operator.ending_namespace import LEFT_ALONE_SECONDS, leave_alone
from embertide_operator.events import event_object
from embertide_operator.kubernetes_api import ApiError, KubernetesApi, Object
from embertide_operator.lost_pods import why_lost
from embertide_operator.metrics import Metrics
from embertide_operator.observe import is_finished, is_managed_elsewhere, observe, output_of
from embertide_operator.obstacles import note_refusal
from embertide_operator.outputs import Outputs
from embertide_operator.reconcile import decide
from embertide_operator.settings import Settings
from embertide_operator.status import Draft
from embertide_operator.workqueue import Key, WorkQueue

_WORKERS = 4
"""Concurrent reconciliations, each blocked in API calls most of the time."""
_RETRY_SECONDS = 2.0
_REJECTED_CHILD_SECONDS = 5.0
_INTERNAL_ERROR_SECONDS = 10.0

log = logging.getLogger("embertide")


@dataclass
class Controller:
    """The controller of one operator process: workers that reconcile jobs from a queue.

    Attributes:
        outputs: what is known of the jobs' outputs.
        claims: which jobs are this operator's.
        resynced: monotonic time of the last successful resync.
    """

    api: KubernetesApi
    settings: Settings
    metrics: Metrics
    queue: WorkQueue = field(default_factory=WorkQueue)
    resynced: float = field(default_factory=time.monotonic)
    outputs: Outputs = field(init=False)
    claims: Claims = field(init=False)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def __post_init__(self) -> None:
        self.outputs = Outputs(self.api, self.settings)
        self.claims = Claims(self.api, self.settings)
        known = self.outputs
        self.metrics.watch(
            self.queue.depth, self.queue.lateness, lambda: list(known.records.values())
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())
            group.create_task(self._resync())
            group.create_task(self._renew_claims())

    async def _work(self) -> None:
        while True:
            async with self.queue.next() as key:
                again = await self._reconcile(key)
            if again is not None:
                await self.queue.add(key, again)

    async def _resync(self) -> None:
        """Queue all unfinished jobs periodically, so that a missed event only costs time."""
        while True:
            try:
                jobs = await asyncio.to_thread(self._list_jobs)
            except ApiError as error:
                log.warning("cannot list EmbeddingJobs: %s", error)
            else:
                for job in jobs:
                    if self._needs_reconciling(job):
                        await self.queue.add(_key(job))
                self.resynced = time.monotonic()
            await asyncio.sleep(self.settings.resync_seconds)

    async def _renew_claims(self) -> None:
        """Show life, so that other operators leave this operator's jobs alone."""
        while True:
            await asyncio.to_thread(self.claims.beat)
            self.metrics.overlapped({name: len(at) for name, at in self.claims.overlaps.items()})
            await asyncio.sleep(self.claims.period_seconds)

    def _list_jobs(self) -> list[Object]:
        """All jobs; what this operator's say of their outputs is kept."""
        found = self.api.jobs()
        self.claims.look_after(found)
        jobs = [job for job in found if self.claims.is_ours(job)]
        now = datetime.now(UTC)
        try:
            self.outputs.note_all(jobs, now)
        except ApiError as error:  # the next resync tries again
            log.warning("cannot keep what jobs say of their outputs: %s", error)
        self.metrics.resynced(jobs, now.timestamp())
        return found

    def _needs_reconciling(self, job: Object) -> bool:
        if not is_finished(job) or _has_ttl(job):
            return True
        return is_outdated(job, self.outputs.last_success(job), datetime.now(UTC))

    async def _reconcile(self, key: Key) -> float | None:
        """Reconcile one job; seconds until the next time, None for never."""
        started = time.monotonic()
        outcome = "ok"
        try:
            job = await asyncio.to_thread(self.api.get, "EmbeddingJob", *key)
            if job is None:
                self.metrics.job_gone(*key)
                return None
            # Jobs with the same output are reconciled one at a time: only one can start.
            async with self._locks.setdefault(output_of(job), asyncio.Lock()):
                return await asyncio.to_thread(self._reconcile_job, job)
        except ApiError as error:
            if error.conflict:
                outcome = "conflict"
                return 0.0
            outcome = "refused"
            log.warning("%s/%s: %s", *key, error)
            return _RETRY_SECONDS
        except Exception:
            # An internal error with one job must not stop the others.
            outcome = "error"
            log.exception("%s/%s: internal error", *key)
            return _INTERNAL_ERROR_SECONDS
        finally:
            self.metrics.reconciled(outcome, time.monotonic() - started)

    def _reconcile_job(self, job: Object) -> float | None:
        # Read again: it may have changed while waiting for the lock.
        meta = job["metadata"]
        job = self.api.get("EmbeddingJob", meta["namespace"], meta["name"]) or {}
        if not job:
            self.metrics.job_gone(meta["namespace"], meta["name"])
            return None
        if is_managed_elsewhere(job):
            return None
        if (later := self.claims.postponed(job)) is not None:
            return self._leave(job, later)
        # Before anything is done: a job whose time to live is over is deleted below.
        self.outputs.note(job)
        seen = observe(
            self.api,
            job,
            kinds=child_kinds(self.settings),
            all_children=self._wants_all_children(job),
            last_success=self.outputs.last_success(job),
        )
        later = self.claims.postponed(job, seen.children.get("StatefulSet"))
        if later is not None:
            return self._leave(job, later)
        seen = replace(seen, pod_loss=why_lost(self.api, seen))
        decision = decide(seen, self.settings, datetime.now(UTC))
        job = self._write(job, decision.draft)
        try:
            self._act(job, decision)
        except ApiError as error:
            if error.retryable or error.conflict:
                raise
            if error.namespace_is_terminating:
                self._write(job, leave_alone(job, datetime.now(UTC)))
                return LEFT_ALONE_SECONDS
            self._write(job, _rejected_child(job, error))
            return _REJECTED_CHILD_SECONDS
        return decision.requeue_after

    def _leave(self, job: Object, seconds: float) -> float | None:
        """Another operator's job: nothing is written; seconds until it is looked at again."""
        self.metrics.job_gone(*_key(job))
        return seconds if math.isfinite(seconds) else None

    def _wants_all_children(self, job: Object) -> bool:
        """Whether to read every child: after a change of the spec, and about once a resync."""
        status = job.get("status") or {}
        if status.get("observedGeneration") != job["metadata"]["generation"]:
            return True
        every = max(1, round(self.settings.resync_seconds / 2))
        return int(time.monotonic()) % every == 0

    def _write(self, job: Object, draft: Draft) -> Object:
        """Write the status and create the Events of its changes, if it has changed."""
        if draft.fields == (job.get("status") or {}):
            return job
        if not (job["metadata"].get("deletionTimestamp")):
            before = job.get("status") or {}
            job = self.api.write_status(job, draft.fields)
            self.metrics.job_written(before, job, draft)
            self.outputs.note(job)
        for event in draft.events:
            meta = job["metadata"]
            log.info("%s/%s: %s: %s", meta["namespace"], meta["name"], event.reason, event.message)
            try:
                self.api.create_event(event_object(job, event, draft.now))
            except ApiError as error:
                if not error.namespace_is_terminating:
                    log.warning("cannot create an Event: %s", error)
        return job

    def _act(self, job: Object, decision: Decision) -> None:
        for service in decision.reset_ports:
            self.api.set_ports(service)
        for child in decision.apply:
            # A pod is made once and never changed, which needs fewer rights.
            (self.api.create_once if child["kind"] == "Pod" else self.api.apply)(child)
        if decision.scale_to_zero is not None:
            self.api.scale(decision.scale_to_zero, 0)
        namespace = job["metadata"]["namespace"]
        for item in decision.delete:
            self.api.delete(item.kind, namespace, item.name, uid=item.uid, force=item.force)


def _rejected_child(job: Object, error: ApiError) -> Draft:
    """The status of a job one of whose child objects the API server rejects."""
    draft = Draft(job, datetime.now(UTC))
    note_refusal(draft, str(error))
    return draft


def _key(job: Object) -> Key:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _has_ttl(job: Object) -> bool:
    return job["spec"].get("ttlSecondsAfterFinished") is not None
