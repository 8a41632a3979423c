"""One pass of one job: observe, decide, write the status, then act.

The status is written first, and only if the job has not changed since it was read. So every later
action can be derived from the status again, and of two operators only one can proceed.

A pass reads the cache. Where its decision does more than tell progress, all is read from the API
and decided again: neither an attempt nor an object comes from a picture that may be old.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from embertide_operator.api.cache import Cache, NotCached, ReadThrough
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.decide.decision import Decision
from embertide_operator.decide.ending_namespace import LEFT_ALONE_SECONDS, leave_alone
from embertide_operator.decide.obstacles import note_refusal
from embertide_operator.decide.push_ends import note_refused
from embertide_operator.decide.pushing import is_unsettled, other_pusher
from embertide_operator.decide.quota_advice import with_advice
from embertide_operator.decide.reconcile import decide
from embertide_operator.job.events import event_object
from embertide_operator.job.observe import (
    Observed,
    Source,
    is_finished,
    is_true,
    observe,
    output_of,
    rank_zero,
)
from embertide_operator.job.status import Draft
from embertide_operator.leadership.heartbeats import Ownership
from embertide_operator.metrics.operator_metrics import Metrics
from embertide_operator.metrics.outputs import Outputs
from embertide_operator.pods.children import child_kinds
from embertide_operator.runtime.admission import Admission, Verdict
from embertide_operator.runtime.deleted_jobs import clear_deleted_job
from embertide_operator.runtime.lost_pods import why_lost
from embertide_operator.runtime.polling import PollResult
from embertide_operator.runtime.push_turns import PushTurns
from embertide_operator.runtime.work_queue import Key

_REJECTED_CHILD_SECONDS = 5.0
_PUSH_TURN_SECONDS = 0.5
_WEIGHTY = ("attempt", "attemptStartTime", "completionTime", "plan", "versions", "retryTime")
"""Fields of the status that change what happens to the workers."""

log = logging.getLogger("embertide")


class Stopped(Exception):
    """This operator may not write any more: it ends, or no longer leads."""


@dataclass
class Passes:
    """Everything that a pass needs; several threads run passes of different jobs.

    Attributes:
        latest_answer: what rank 0 of a job's attempt answered last, by key, UID and attempt.
        may_write: asked before every write.
    """

    api: KubernetesApi
    cache: Cache
    settings: Settings
    metrics: Metrics
    outputs: Outputs
    admission: Admission
    ownership: Ownership
    latest_answer: Callable[[Key, str, int], PollResult]
    may_write: Callable[[], bool]
    _source: ReadThrough = field(init=False)
    _push_turns: PushTurns = field(default_factory=PushTurns)

    def __post_init__(self) -> None:
        self._source = ReadThrough(self.api, self.cache)

    def look(self, job: Object) -> Decision | None:
        """The decision from the cache where it is to do nothing; None where a pass has to be run.

        It sends no request and takes a few milliseconds, so it needs no thread of its own.
        """
        if is_finished(job) or not job.get("status"):
            return None
        try:
            decision = self._decide(self.cache, job, self.admission.ask(job))
        except NotCached:
            return None
        quiet = decision.draft.fields == job["status"] and not _is_weighty(job, decision)
        return decision if quiet else None

    def run(self, job: Object) -> float | None:
        """One pass; seconds until the next without an event, None for never. Blocking.

        Raises:
            ApiError: the API server refused or did not answer.
            Stopped: nothing may be written any more.
        """
        if not (is_finished(job) and is_unsettled(job)):
            return self._run(job)
        with self._push_turns.take(output_of(job)) as is_free:
            return self._run(job) if is_free else _PUSH_TURN_SECONDS

    def _run(self, job: Object) -> float | None:
        decision: Decision | None
        # Before anything is done: a job whose time to live is over is deleted below.
        if is_finished(job) or not job.get("status"):
            self._check()
            self.outputs.note(job)
        verdict = self.admission.ask(job)
        try:
            decision = self._decide(self.cache, job, verdict)
        except NotCached:
            decision = None
        if decision is None or _is_weighty(job, decision):
            meta = job["metadata"]
            found = self._source.get("EmbeddingJob", meta["namespace"], meta["name"])
            if found is None or found["metadata"]["uid"] != meta["uid"]:
                return None
            # Another operator may have claimed it since the picture was taken.
            later = self.ownership.postponed(found)
            if later is not None:
                return later if math.isfinite(later) else None
            job = found
            decision = self._decide(self._source, job, verdict)
        return self._carry_out(job, decision)

    def clear(self, key: Key) -> None:
        """Stop what a deleted job has left. Blocking; raises as :meth:`run`."""
        self._check()
        clear_deleted_job(self.api, self.cache, key, self.settings.identity)

    def _decide(self, source: Source, job: Object, verdict: Verdict) -> Decision:
        seen = observe(source, job, child_kinds(self.settings))
        seen = replace(seen, pod_loss=why_lost(source, seen))
        return decide(self._with_others(seen, verdict), self.settings, datetime.now(UTC))

    def _with_others(self, seen: Observed, verdict: Verdict) -> Observed:
        """With what rank 0 and other jobs say."""
        meta, attempt = seen.job["metadata"], seen.status.get("attempt", 0)
        answer = self.latest_answer((meta["namespace"], meta["name"]), meta["uid"], attempt)
        now = time.monotonic()
        pod = rank_zero(seen.pods, meta["uid"], attempt)
        silent = answer.silent_since if pod is not None and is_true(pod, "Ready") else None
        return replace(
            seen,
            report=answer.report,
            unreachable_why="" if silent is None else answer.why,
            unreachable_seconds=0.0 if silent is None else now - silent,
            server_ahead=self.api.server_ahead,
            competing_job=verdict.competing,
            queued=verdict.queued,
            pushing_job=self._other_pusher(seen.job),
            last_success=self.outputs.last_success(seen.job),
        )

    def _other_pusher(self, job: Object) -> str:
        """The job that this one's push waits for; jobs that push nothing look at no others."""
        pushes = is_finished(job) and is_unsettled(job)
        return other_pusher(job, self.cache.jobs(), self._pods_of) if pushes else ""

    def _pods_of(self, job: Object) -> list[Object]:
        return self.cache.pods(job["metadata"]["namespace"], job["metadata"]["name"])

    def _carry_out(self, job: Object, decision: Decision) -> float | None:
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

    def _write(self, job: Object, draft: Draft) -> Object:
        """Write the status and create the Events of its changes, if it has changed."""
        if draft.fields == (job.get("status") or {}):
            return job
        if not (job["metadata"].get("deletionTimestamp")):
            before = job.get("status") or {}
            self._check()
            job = self.api.write_status(job, draft.fields)
            self.cache.written(job)
            self.metrics.job_written(before, job, draft)
            self.outputs.note(job)
        for event in draft.events:
            meta = job["metadata"]
            log.info("%s/%s: %s: %s", meta["namespace"], meta["name"], event.reason, event.message)
            self._check()
            try:
                self.api.create_event(event_object(job, event, draft.now))
            except ApiError as error:
                if not error.namespace_is_terminating:
                    log.warning("cannot create an Event: %s", error)
        return job

    def _act(self, job: Object, decision: Decision) -> None:
        for service in decision.reset_ports:
            self._check()
            self.api.set_ports(service)
        for child in decision.apply:
            self._check()
            # A pod is made once and never changed, which needs fewer rights.
            put = self.api.create_once if child["kind"] == "Pod" else self.api.apply
            self.cache.written(put(child))
        if decision.scale_to_zero is not None:
            self._check()
            self.cache.written(self.api.scale(decision.scale_to_zero, 0))
        namespace = job["metadata"]["namespace"]
        if decision.clear:
            self._check()
            self.api.delete_pods(namespace, decision.clear)
        for item in decision.delete:
            self._check()
            self.api.delete(item.kind, namespace, item.name, uid=item.uid, force=item.force)

    def _check(self) -> None:
        if not self.may_write():
            raise Stopped


def _is_weighty(job: Object, decision: Decision) -> bool:
    """Whether a decision starts, ends or changes anything: no old picture may lead to it."""
    if decision.apply or decision.scale_to_zero is not None or decision.clear or decision.delete:
        return True
    status = job.get("status") or {}
    return any(status.get(name) != decision.draft[name] for name in _WEIGHTY)


def _rejected_child(job: Object, error: ApiError) -> Draft:
    """The status of a job one of whose child objects the API server rejects."""
    draft = Draft(job, datetime.now(UTC))
    if is_true(job, "Complete"):
        note_refused(draft, with_advice(str(error), job["metadata"]["name"]))
        return draft
    note_refusal(draft, with_advice(str(error), job["metadata"]["name"]))
    return draft
