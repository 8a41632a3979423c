"""From a key to a reconciled job: observe, decide, write the status, then act.

The status goes first, and only onto the version of the job that was read. So what is done
afterwards can always be derived from it again, and two operators cannot both go ahead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from embertide_operator.advance import REFUSED
from embertide_operator.decision import Decision
from embertide_operator.events import event
from embertide_operator.kubernetes_api import ApiError, KubernetesApi, Object
from embertide_operator.metrics import Metrics
from embertide_operator.observe import is_finished, observe, output_of
from embertide_operator.reconcile import decide
from embertide_operator.settings import Settings
from embertide_operator.status import Draft
from embertide_operator.workqueue import Key, WorkQueue

_WORKERS = 4
_RETRY_SECONDS = 2.0
_REFUSED_SECONDS = 5.0

log = logging.getLogger("embertide")


@dataclass
class Controller:
    """Everything that one operator process does, and when it did it last.

    Attributes:
        resynced: monotonic time of the last finished look at all jobs.
    """

    api: KubernetesApi
    settings: Settings
    metrics: Metrics
    queue: WorkQueue = field(default_factory=WorkQueue)
    resynced: float = field(default_factory=time.monotonic)
    _outputs: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._work())
            group.create_task(self._resync())

    async def _work(self) -> None:
        while True:
            async with self.queue.next() as key:
                again = await self._reconcile(key)
            if again is not None:
                await self.queue.add(key, again)

    async def _resync(self) -> None:
        """Look at all jobs every so often: an event that was missed costs time, nothing else."""
        while True:
            try:
                jobs = await asyncio.to_thread(self.api.jobs)
            except ApiError as refused:
                log.warning("jobs cannot be listed: %s", refused)
            else:
                self.metrics.jobs(jobs)
                for job in jobs:
                    if not is_finished(job) or _has_ttl(job):
                        await self.queue.add(_key(job))
                self.resynced = time.monotonic()
            await asyncio.sleep(self.settings.resync_seconds)

    async def _reconcile(self, key: Key) -> float | None:
        """One pass over one job; seconds until it needs another, None for never."""
        started = time.monotonic()
        outcome = "ok"
        try:
            job = await asyncio.to_thread(self.api.get, "EmbeddingJob", *key)
            if job is None:
                return None
            # Of jobs with one output, one is decided on at a time: only one can begin.
            async with self._outputs.setdefault(output_of(job), asyncio.Lock()):
                return await asyncio.to_thread(self._pass, job)
        except ApiError as refused:
            outcome = "conflict" if refused.conflict else "refused"
            if not refused.conflict:
                log.warning("%s/%s: %s", *key, refused)
            return 0.0 if refused.conflict else _RETRY_SECONDS
        except Exception:
            # One job that we cannot handle must not keep us from the others.
            outcome = "error"
            log.exception("%s/%s: internal error", *key)
            return _RETRY_SECONDS * 5
        finally:
            self.metrics.reconciled(outcome, time.monotonic() - started)

    def _pass(self, job: Object) -> float | None:
        # Read again: it may have changed while we waited for our turn.
        meta = job["metadata"]
        job = self.api.get("EmbeddingJob", meta["namespace"], meta["name"]) or {}
        if not job:
            return None
        seen = observe(self.api, job, all_children=self._wants_all_children(job))
        decision = decide(seen, self.settings, datetime.now(UTC))
        job = self._write(job, decision.draft)
        try:
            self._act(job, decision)
        except ApiError as refused:
            if refused.passing or refused.conflict:
                raise
            self._write(job, _refused(job, refused))
            return _REFUSED_SECONDS
        return decision.requeue_after

    def _wants_all_children(self, job: Object) -> bool:
        """Look at every child after each change of the spec, and about once a resync."""
        status = job.get("status") or {}
        if status.get("observedGeneration") != job["metadata"]["generation"]:
            return True
        every = max(1, round(self.settings.resync_seconds / 2))
        return int(time.monotonic()) % every == 0

    def _write(self, job: Object, draft: Draft) -> Object:
        """Write the status and post the Events of what changed, if anything did."""
        if draft.fields == (job.get("status") or {}):
            return job
        if not (job["metadata"].get("deletionTimestamp")):
            job = self.api.write_status(job, draft.fields)
        for note in draft.events:
            meta = job["metadata"]
            log.info("%s/%s: %s: %s", meta["namespace"], meta["name"], note.reason, note.message)
            try:
                self.api.create_event(event(job, note, draft.now))
            except ApiError as refused:
                log.warning("an Event was not taken: %s", refused)
        return job

    def _act(self, job: Object, decision: Decision) -> None:
        for child in decision.apply:
            self.api.apply(child)
        if decision.scale_to_zero is not None:
            self.api.scale(decision.scale_to_zero, 0)
        namespace = job["metadata"]["namespace"]
        for item in decision.delete:
            self.api.delete(item.kind, namespace, item.name, uid=item.uid, force=item.force)


def _refused(job: Object, refused: ApiError) -> Draft:
    """The status of a job one of whose objects the API server does not take."""
    draft = Draft(job, datetime.now(UTC))
    message = f"the API server refuses an object of this job: {refused}"
    if draft.condition("WorkersReady").get("message") != message:
        draft.add_event(REFUSED, message, warning=True)
    draft.set("WorkersReady", False, REFUSED, message)
    return draft


def _key(job: Object) -> Key:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _has_ttl(job: Object) -> bool:
    return job["spec"].get("ttlSecondsAfterFinished") is not None
