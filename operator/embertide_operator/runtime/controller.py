"""The controller of one operator process: workers that take jobs from a queue, and what feeds it.

Whatever changes in the cache queues the job that it belongs to, and those that waited for it. Most
passes find nothing to do and end in the event loop; those that write run in a few threads. Jobs
that wait for an output, for room or for an answer take none of them.

An exception in one of the tasks is logged and the task goes on. What is no `Exception`, or ends a
task all the same, ends `run()`, and with it the process (``handlers.py``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from embertide.spec.naming import LABEL_JOB
from embertide_operator.api.backoff import Backoff
from embertide_operator.api.cache import Cache
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.store import name_of
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.decide.decision import are_many
from embertide_operator.decide.pushing import is_unsettled
from embertide_operator.job.conditions import is_outdated
from embertide_operator.job.observe import is_finished, label, rank_zero
from embertide_operator.leadership.heartbeats import Ownership
from embertide_operator.metrics.operator_metrics import Metrics
from embertide_operator.metrics.outputs import Outputs
from embertide_operator.pods.children import child_kinds
from embertide_operator.runtime.admission import Admission
from embertide_operator.runtime.capacity import Limits
from embertide_operator.runtime.passes import Passes, Stopped
from embertide_operator.runtime.polling import Target, WorkerPoller
from embertide_operator.runtime.work_queue import Key, WorkQueue
from embertide_operator.schedules.sync import Schedules

_WORKERS = 8
"""Concurrent passes, each blocked in API calls most of the time."""
_CONFLICT_SECONDS = 0.05, 5.0
_ERROR_SECONDS = 1.0, 60.0
_TASK_PAUSE_SECONDS = 1.0
_BEAT_SECONDS = 1.0

log = logging.getLogger("embertide")


@dataclass
class Controller:
    """Queue, cache and workers of one operator process.

    Watches may be warm before :meth:`run`, which needs the lead; nothing is written outside it.

    Attributes:
        outputs: what is known of the jobs' outputs.
        cache: the objects that passes read.
        admission: which job may start.
        ownership: which jobs are this operator's.
        schedules: what is known of the schedules.
        beat: monotonic time of the event loop's last turn; None outside :meth:`run`.
    """

    api: KubernetesApi
    settings: Settings
    metrics: Metrics
    queue: WorkQueue = field(default_factory=WorkQueue)
    outputs: Outputs = field(init=False)
    cache: Cache = field(init=False)
    admission: Admission = field(init=False)
    ownership: Ownership = field(init=False)
    schedules: Schedules = field(init=False)
    beat: float | None = None
    _writes: bool = False
    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None] | None = None
    _passes: dict[Key, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.outputs = Outputs(self.api, self.settings)
        kinds = child_kinds(self.settings)
        self.cache = Cache(self.api, self.settings.namespaces, kinds, self._changed)
        self.ownership = Ownership(self.api, self.settings)
        self.admission = Admission(Limits.of(self.settings))
        self._poller = WorkerPoller(self.queue.add, self.metrics.asked)
        self._conflicts: Backoff[Key] = Backoff(*_CONFLICT_SECONDS)
        self._errors: Backoff[Key] = Backoff(*_ERROR_SECONDS)
        self._pass = Passes(
            self.api,
            self.cache,
            self.settings,
            self.metrics,
            self.outputs,
            self.admission,
            self.ownership,
            self._poller.latest,
            lambda: self._writes,
        )
        self.schedules = Schedules(self.api, self.settings, self.cache.jobs, lambda: self._writes)
        self.metrics.watch_schedules(lambda: list(self.schedules.statuses.items()))
        known = self.outputs
        self.metrics.watch(
            self.queue.depth, self.queue.lateness, lambda: list(known.records.values())
        )
        self.metrics.watch_admission(self.admission.waiting)

    def warm(self) -> None:
        """Begin to watch, without reconciling anything."""
        self.cache.start(self.settings.resync_seconds, self.metrics.watch_failed)

    async def run(self) -> None:
        """Work until cancelled or stopped; nothing is written afterwards."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        self.warm()
        threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="pass")
        self._writes = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._for_ever("the event loop's beat", self._beat))
                while not self.cache.synced:
                    await asyncio.sleep(_BEAT_SECONDS / 10)
                group.create_task(self._for_ever("the resync", self._resync))
                group.create_task(self._for_ever("renewing the heartbeats", self._renew_heartbeats))
                group.create_task(self._for_ever("the schedules", self._refresh_schedules))
                for _ in range(_WORKERS):
                    group.create_task(self._for_ever("a worker", lambda: self._work(threads)))
        finally:
            self._writes, self._loop, self.beat = False, None, None
            # A pass that runs ends with its next write, which is refused.
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
            await self._poller.close()

    async def stop(self) -> None:
        """End :meth:`run`; once this returns nothing is written any more."""
        self._writes = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def longest_pass(self) -> tuple[float, Key | None]:
        """(seconds, job) of the pass that has been running for longest; any thread may call."""
        with self._lock:
            if not self._passes:
                return 0.0, None
            key = min(self._passes, key=self._passes.__getitem__)
            return time.monotonic() - self._passes[key], key

    async def _for_ever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until cancelled, whatever it raises."""
        while True:
            try:
                await step()
            except Exception:
                log.exception("%s failed and goes on", name)
                await asyncio.sleep(_TASK_PAUSE_SECONDS)

    async def _beat(self) -> None:
        self.beat = time.monotonic()
        await asyncio.sleep(_BEAT_SECONDS)

    async def _renew_heartbeats(self) -> None:
        """Operators that would take the same jobs leave them alone as long as they see it."""
        self.ownership.cover(self.cache.jobs())
        await asyncio.to_thread(self.ownership.beat)
        self.metrics.overlapped({name: len(at) for name, at in self.ownership.overlaps.items()})
        await asyncio.sleep(self.ownership.period_seconds)

    async def _refresh_schedules(self) -> None:
        try:
            await asyncio.to_thread(self.schedules.look, datetime.now(UTC))
        except ApiError as error:  # the next look tries again
            log.warning("cannot look at the schedules: %s", error)
        await asyncio.sleep(self.settings.resync_seconds)

    async def _work(self, threads: ThreadPoolExecutor) -> None:
        async with self.queue.next() as key:
            again = await self._reconcile(key, threads)
        if again is not None:
            self.queue.add(key, again)

    async def _resync(self) -> None:
        """Queue all jobs that need a pass, so that a missed event only costs time."""
        jobs = self.cache.jobs()
        await asyncio.to_thread(self._note, jobs)
        for job in jobs:
            if self._needs_pass(job):
                self.queue.add(name_of(job))
        await asyncio.sleep(self.settings.resync_seconds)

    def _note(self, jobs: list[Object]) -> None:
        """Keep what all jobs say of their outputs, and how fresh this picture is."""
        now = datetime.now(UTC)
        jobs = [job for job in jobs if self.ownership.is_ours(job)]
        try:
            if self._writes:
                self.outputs.note_all(jobs, now)
        except ApiError as error:  # the next resync tries again
            log.warning("cannot keep what jobs say of their outputs: %s", error)
        self.metrics.resynced(jobs, now.timestamp() - self.cache.silence()[0])

    def _needs_pass(self, job: Object) -> bool:
        if not is_finished(job):
            return not self.admission.shows_reason(job)
        if is_unsettled(job) and name_of(job) not in self.queue:
            return True
        if (
            job["spec"].get("ttlSecondsAfterFinished") is not None
            and name_of(job) not in self.queue
        ):
            return True
        return is_outdated(job, self.outputs.last_success(job), datetime.now(UTC))

    async def _reconcile(self, key: Key, threads: ThreadPoolExecutor) -> float | None:
        """One pass of a job; seconds until the next, None for never."""
        job = self.cache.get("EmbeddingJob", *key)
        if job is None:
            self._poller.forget(key)
            return await self._clear(key, threads)
        later = self.ownership.postponed(job, self.cache.get("StatefulSet", *key))
        if later is not None:  # another one's: no worker is asked, and nothing is written
            self._poller.forget(key)
            self.metrics.job_gone(*key)
            return later if math.isfinite(later) else None
        self._follow_rank_zero(key, job)
        started = time.monotonic()
        outcome, uid = "ok", job["metadata"]["uid"]
        with self._lock:
            self._passes[key] = started
        try:
            if (idle := self._pass.look(job)) is not None:
                return idle.requeue_after
            again = await asyncio.get_running_loop().run_in_executor(threads, self._pass.run, job)
        except ApiError as error:
            outcome = "conflict" if error.conflict else "refused"
            return await self._after_refusal(key, error, threads)
        except Stopped:
            return None
        except Exception:
            # An internal error with one job must not stop the others.
            outcome = "error"
            log.exception("%s/%s: internal error", *key)
            return self._errors.next(key)
        else:
            self._conflicts.reset(key)
            self._errors.reset(key)
            return again
        finally:
            with self._lock:
                self._passes.pop(key, None)
            self.metrics.reconciled(outcome, time.monotonic() - started)
            self.wake(self._release(uid, self.cache.get("EmbeddingJob", *key)))

    async def _clear(self, key: Key, threads: ThreadPoolExecutor) -> float | None:
        """Stop what a deleted job has left; seconds until the next try, None where it is done."""
        if not are_many(self.cache.pods(*key)):
            return None
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(threads, self._pass.clear, key)
        except ApiError as error:
            log.warning("%s/%s: cannot stop the pods of the deleted job: %s", *key, error)
            return self._errors.next(key)
        except Stopped:
            return None
        self._errors.reset(key)
        return None

    def _release(self, uid: str, job: Object | None) -> list[Key]:
        ours = job is not None and self.ownership.is_ours(job)
        return self.admission.release(uid, job, ours=ours)

    async def _after_refusal(self, key: Key, error: ApiError, threads: ThreadPoolExecutor) -> float:
        """Seconds to wait after a refused request; after a conflict the job is read again."""
        if not error.conflict:
            log.warning("%s/%s: %s", *key, error)
            return self._errors.next(key)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(threads, self.api.get, "EmbeddingJob", *key)
        except ApiError:
            return self._errors.next(key)
        if found is not None:
            self.cache.written(found)
        return self._conflicts.next(key)

    def _follow_rank_zero(self, key: Key, job: Object) -> None:
        """Let rank 0 be asked from now on, where it can answer."""
        meta, attempt = job["metadata"], (job.get("status") or {}).get("attempt", 0)
        if is_finished(job):
            self._poller.forget(key)
            return
        pod = rank_zero(self.cache.pods(*key), meta["uid"], attempt)
        self._poller.follow(key, Target.of(key, meta["uid"], attempt, pod) if pod else None)

    def _changed(self, kind: str, before: Object | None, after: Object | None) -> None:
        """An object in the cache has changed; any thread may call."""
        item = after or before
        assert item is not None
        if kind != "EmbeddingJob":
            self.wake([(item["metadata"]["namespace"], label(item, LABEL_JOB))])
            return
        woken = [name_of(item)]
        if before is not None and (
            after is None or before["metadata"]["uid"] != after["metadata"]["uid"]
        ):
            woken += self.admission.forget(before["metadata"]["uid"])
            self.metrics.job_gone(*name_of(before))
        if after is not None:
            woken += self.admission.note(after, ours=self.ownership.is_ours(after))
        self.wake(woken)

    def wake(self, keys: Iterable[Key]) -> None:
        """Queue jobs, from any thread; the first resync queues those of an earlier time."""
        loop = self._loop
        if loop is None:
            return
        for key in dict.fromkeys(keys):
            loop.call_soon_threadsafe(self.queue.add, key)
