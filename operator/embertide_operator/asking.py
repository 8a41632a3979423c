"""Ask rank 0 of every running job how far it is; passes read the latest answer and never wait.

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
from embertide_operator.answers import MOST_BYTES, BadAnswerError, read_answer
from embertide_operator.observe import container_status, is_true
from embertide_operator.routes import Object
from embertide_operator.workqueue import Key

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
    """Whom to ask: rank 0 of an attempt, at the address of a pod.

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
class Heard:
    """What is known from asking. Times are this process's monotonic seconds.

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
class _Asked:
    """One job's target, what was heard of it, and the task that asks."""

    target: Target
    heard: Heard = field(default_factory=Heard)
    failures: int = 0
    task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Ask no more; what was heard stays."""
        if self.task is not None:
            self.task.cancel()
        self.task, self.failures = None, 0
        self.heard = replace(self.heard, silent_since=None, why="")


class Asking:
    """Asks the workers; all methods but :meth:`heard` are for the event loop's thread.

    Args:
        on_news: called with a job whose answer says something new.
        on_asked: told of every outcome: ``answered``, ``refused`` or ``unreachable``.
    """

    def __init__(
        self, on_news: Callable[[Key], None], on_asked: Callable[[str], None] = lambda _: None
    ) -> None:
        self._on_news, self._on_asked = on_news, on_asked
        self._asked: dict[Key, _Asked] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    def follow(self, key: Key, target: Target | None) -> None:
        """Ask this worker from now on for a job; None asks nobody, and keeps what was heard."""
        known = self._asked.get(key)
        if known is not None and (target is None or known.target.pod != target.pod):
            known.stop()
        if target is None:
            return
        if known is None or _attempt(known.target) != _attempt(target):
            self.forget(key)
            known = self._asked[key] = _Asked(target)
        known.target = target
        if known.task is None:
            known.task = asyncio.get_running_loop().create_task(self._ask_on(known))

    def forget(self, key: Key) -> None:
        """Ask nobody for a job that has ended or is gone."""
        known = self._asked.pop(key, None)
        if known is not None:
            known.stop()

    def heard(self, key: Key, uid: str, attempt: int) -> Heard:
        """What is known of a job's attempt; any thread may call."""
        found = self._asked.get(key)
        if found is None or _attempt(found.target) != (uid, attempt):
            return Heard()
        return found.heard

    async def close(self) -> None:
        """Ask nobody any more."""
        for key in list(self._asked):
            self.forget(key)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask_on(self, asked: _Asked) -> None:
        while True:
            try:
                async with self._slots:
                    await self._ask(asked)
            except Exception:
                log.exception("%s/%s: asking rank 0 failed", *asked.target.job)
                asked.failures += 1
            await asyncio.sleep(_pause(asked))

    async def _ask(self, asked: _Asked) -> None:
        """Ask once and keep what was heard."""
        target, before, now = asked.target, asked.heard, time.monotonic()
        try:
            data = await self._get(target)
            report = read_answer(data, target.uid, target.attempt)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, BadAnswerError) as error:
            self._on_asked("refused" if isinstance(error, BadAnswerError) else "unreachable")
            asked.failures += 1
            since = before.silent_since or now
            why = str(error) or f"no answer within {_TOTAL_SECONDS:g} s"
            asked.heard = Heard(before.report, before.at, since if target.ready else None, why)
        else:
            self._on_asked("answered")
            asked.failures = 0
            asked.heard = Heard(report, time.monotonic())
        if (asked.heard.report, asked.heard.why) != (before.report, before.why):
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


def _pause(asked: _Asked) -> float:
    if asked.failures > 1:
        return min(_LONGEST_PAUSE_SECONDS, _EVERY_SECONDS * 2.0 ** min(asked.failures - 1, 10))
    report = asked.heard.report
    percent = report.progress.percent if report is not None and report.progress else 0
    return _NEARLY_DONE_SECONDS if percent >= _NEARLY_DONE_PERCENT else _EVERY_SECONDS
