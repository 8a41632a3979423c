"""Poll rank 0 of every running job for its progress; passes read the latest answer and never wait.

Each job has a task of its own that asks its rank 0 again and again. How many ask at once is
bounded, and so are the time and the size of an answer, so a pod that hangs, streams for ever or
answers garbage costs only its own job an answer. One that fails repeatedly is asked less often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import aiohttp

from embertide.spec.naming import HTTP_PORT
from embertide.spec.reports import WorkerStatus
from embertide_operator.api.routes import Object
from embertide_operator.job.observe import container_status, is_true
from embertide_operator.runtime.work_queue import Key
from embertide_operator.runtime.worker_answers import MOST_BYTES, BadAnswerError, read_answer

AT_ONCE = 32
"""How many workers are asked at the same time."""
_EVERY_SECONDS = 2.0
_NEARLY_DONE_SECONDS = 0.7
_NEARLY_DONE_PERCENT = 80
_LONGEST_PAUSE_SECONDS = 16.0
_CONNECT_SECONDS = 2.0
_TOTAL_SECONDS = 5.0
_OK = 200

log = logging.getLogger("embertide")


@dataclass(frozen=True)
class Target:
    """Where to ask: rank 0 of an attempt, at the address of a pod.

    Attributes:
        ready: whether the pod is Ready, so that it ought to answer.
        pod: the UID of the pod, and how often its container was started.
    """

    job: Key
    uid: str
    attempt: int
    pod: tuple[str, int]
    address: str
    ready: bool
    port: int = HTTP_PORT

    @classmethod
    def of(cls, job: Key, uid: str, attempt: int, pod: Object) -> Target:
        """The one that a pod with an address is."""
        restarts = int(container_status(pod).get("restartCount", 0))
        started = pod["metadata"]["uid"], restarts
        return cls(job, uid, attempt, started, pod["status"]["podIP"], is_true(pod, "Ready"))


@dataclass(frozen=True)
class PollResult:
    """What polling rank 0 gave. Times are this process's monotonic seconds.

    Attributes:
        report: the latest answer of this attempt; None before the first.
        at: when it was received; None before the first.
        silent_since: since when rank 0 is Ready, is asked and does not answer; None if it does.
        why: why there was no answer the last time; "" if there was.
    """

    report: WorkerStatus | None = None
    at: float | None = None
    silent_since: float | None = None
    why: str = ""


@dataclass
class _Polled:
    """One job's target, its latest result, and the task that polls."""

    target: Target
    result: PollResult = field(default_factory=PollResult)
    failures: int = 0
    task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop polling; the last result stays."""
        if self.task is not None:
            self.task.cancel()
        self.task, self.failures = None, 0
        self.result = replace(self.result, silent_since=None, why="")


class WorkerPoller:
    """Polls rank 0 of running jobs; all methods but :meth:`latest` are for the event loop's thread.

    Args:
        on_news: called with a job whose answer says something new.
        on_outcome: called with every outcome: ``answered``, ``refused`` or ``unreachable``.
    """

    def __init__(
        self, on_news: Callable[[Key], None], on_outcome: Callable[[str], None] = lambda _: None
    ) -> None:
        self._on_news, self._on_outcome = on_news, on_outcome
        self._polled: dict[Key, _Polled] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    def follow(self, key: Key, target: Target | None) -> None:
        """Poll this worker from now on for a job; None polls no one, and keeps the last result."""
        known = self._polled.get(key)
        if known is not None and (target is None or known.target.pod != target.pod):
            known.stop()
        if target is None:
            return
        if known is None or _attempt(known.target) != _attempt(target):
            self.forget(key)
            known = self._polled[key] = _Polled(target)
        known.target = target
        if known.task is None:
            known.task = asyncio.get_running_loop().create_task(self._poll_forever(known))

    def forget(self, key: Key) -> None:
        """Stop polling for a job that has ended or is gone, and drop its result."""
        known = self._polled.pop(key, None)
        if known is not None:
            known.stop()

    def latest(self, key: Key, uid: str, attempt: int) -> PollResult:
        """What is known of a job's attempt; any thread may call."""
        polled = self._polled.get(key)
        if polled is None or _attempt(polled.target) != (uid, attempt):
            return PollResult()
        return polled.result

    async def close(self) -> None:
        """Stop all polling."""
        for key in list(self._polled):
            self.forget(key)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _poll_forever(self, polled: _Polled) -> None:
        while True:
            try:
                async with self._slots:
                    await self._poll_once(polled)
            except Exception:
                log.exception("%s/%s: asking rank 0 failed", *polled.target.job)
                polled.failures += 1
            await asyncio.sleep(_pause(polled))

    async def _poll_once(self, polled: _Polled) -> None:
        """Ask once and keep the result."""
        target, before, now = polled.target, polled.result, time.monotonic()
        try:
            data = await self._get(target)
            report = read_answer(data, target.uid, target.attempt)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, BadAnswerError) as error:
            self._on_outcome("refused" if isinstance(error, BadAnswerError) else "unreachable")
            polled.failures += 1
            since = before.silent_since or now
            why = str(error) or f"no answer within {_TOTAL_SECONDS:g} s"
            polled.result = PollResult(
                before.report, before.at, since if target.ready else None, why
            )
        else:
            self._on_outcome("answered")
            polled.failures = 0
            polled.result = PollResult(report, time.monotonic())
        if (polled.result.report, polled.result.why) != (before.report, before.why):
            self._on_news(target.job)

    async def _get(self, target: Target) -> bytes:
        """The body of ``/status``.

        No redirect is followed and nothing is decompressed: a pod decides neither whom the operator
        asks nor how large an answer becomes.
        """
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_TOTAL_SECONDS, connect=_CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=AT_ONCE, force_close=True),
            )  # fmt: skip
        host = f"[{target.address}]" if ":" in target.address else target.address
        url = f"http://{host}:{target.port}/status"
        async with self._session.get(url, allow_redirects=False) as answer:
            if answer.status != _OK:
                raise BadAnswerError(f"/status answers with HTTP status {answer.status}")
            data = bytearray()
            async for part in answer.content.iter_any():
                data += part
                if len(data) > MOST_BYTES:
                    raise BadAnswerError(f"/status has more than {MOST_BYTES} bytes")
            return bytes(data)


def _attempt(target: Target) -> tuple[str, int]:
    """What an answer is about: the next attempt has nothing of the one before."""
    return target.uid, target.attempt


def _pause(polled: _Polled) -> float:
    if polled.failures > 1:
        return min(_LONGEST_PAUSE_SECONDS, _EVERY_SECONDS * 2.0 ** min(polled.failures - 1, 10))
    report = polled.result.report
    percent = report.progress.percent if report is not None and report.progress else 0
    return _NEARLY_DONE_SECONDS if percent >= _NEARLY_DONE_PERCENT else _EVERY_SECONDS
