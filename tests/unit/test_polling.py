"""Polling workers: each may do what it likes, and only its own job is worse off."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from embertide.spec.reports import OutputReport, ProgressReport, WorkerStatus
from embertide_operator.runtime.polling import AT_ONCE, PollResult, Target, WorkerPoller
from embertide_operator.runtime.worker_answers import MOST_BYTES, BadAnswerError, read_answer
from tests.support.operator_world import UID

Write = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
AT = "2026-11-21T12:00:00Z"


def status(percent: int = 40, **more: Any) -> WorkerStatus:
    progress = ProgressReport(stage="infer", percent=percent, last_update_time=AT)
    fields = {"job_uid": UID, "attempt": 1, "rank": 0, "state": "running", "progress": progress}
    return WorkerStatus.model_validate(fields | more)


def answer(body: bytes, head: str = "200 OK", *lines: str) -> bytes:
    fields = "".join(f"{line}\r\n" for line in (f"Content-Length: {len(body)}", *lines))
    return f"HTTP/1.1 {head}\r\n{fields}\r\n".encode() + body


def always(data: bytes) -> Write:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return say


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def stream_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await asyncio.sleep(0.02)


@asynccontextmanager
async def worker(write: Write) -> AsyncIterator[int]:
    """The port of a worker that does this with every connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await write(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Operator:
    """Who asks; news and outcomes are kept."""

    def __init__(self) -> None:
        self.news: list[tuple[str, str]] = []
        self.outcomes: list[str] = []
        self.poller = WorkerPoller(self.news.append, self.outcomes.append)

    def follow(self, port: int, name: str = "a", **more: Any) -> None:
        fields = {"uid": UID, "attempt": 1, "pod": ("pod", 0), "address": "127.0.0.1"}
        key = ("shop", name)
        target = Target(key, **(fields | {"ready": True, "port": port} | more))
        self.poller.follow(key, target)

    def heard(self, name: str = "a", attempt: int = 1) -> PollResult:
        return self.poller.latest(("shop", name), UID, attempt)

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)


def run(main: Callable[[Operator], Awaitable[None]]) -> None:
    async def whole() -> None:
        operator = Operator()
        try:
            await main(operator)
        finally:
            await operator.poller.close()

    asyncio.run(whole())


def test_the_latest_answer_and_when_it_came() -> None:
    async def main(operator: Operator) -> None:
        async with worker(always(answer(status().to_text().encode()))) as port:
            assert operator.heard() == PollResult()
            began = time.monotonic()
            operator.follow(port)
            await operator.until(lambda: operator.heard().report)
        heard = operator.heard()
        assert heard.report == status()
        assert heard.at is not None
        assert began <= heard.at <= time.monotonic()
        assert (heard.silent_since, heard.why) == (None, "")
        assert operator.news == [("shop", "a")]
        assert operator.heard(attempt=2) == PollResult(), "the next attempt has said nothing"

    run(main)


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (always(answer(b"<html>")), "not what a worker says"),
        (always(answer(status(job_uid="other").to_text().encode())), "another job or attempt"),
        (always(answer(b"", "500 Oh no")), "HTTP status 500"),
        (always(answer(b"", "302 Found", "Location: http://169.254.169.254/")), "HTTP status 302"),
        (always(answer(b" " * (MOST_BYTES + 1))), "more than 262144 bytes"),
        (always(b"\x00" * 100), "Bad status line|Expected"),
        (stream_for_ever, "more than 262144 bytes"),
        (hang, "no answer within 0.3 s"),
        (drip, "no answer within 0.3 s"),
        (always(answer(b"{}", "200 OK", "Content-Encoding: gzip")), "not what a worker says"),
    ],
    ids=["html", "other", "500", "redirect", "large", "binary", "endless", "hang", "drip", "gzip"],
)
def test_what_is_no_answer_is_told_and_the_last_good_one_stays(
    write: Write, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = write in (hang, drip)
    monkeypatch.setattr(
        "embertide_operator.runtime.polling._TOTAL_SECONDS", 0.3 if silent else 60.0
    )

    async def main(operator: Operator) -> None:
        async with worker(write) as port:
            operator.follow(port)
            await operator.until(lambda: operator.heard().why)
        heard = operator.heard()
        assert heard.report is None
        assert heard.silent_since is not None
        assert re.search(why, heard.why), heard.why
        assert operator.news == [("shop", "a")], "the job is told at once"

    run(main)


@pytest.mark.tier(2)
def test_hanging_pods_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many as may be asked at once hang; one that answers is asked again and again."""
    monkeypatch.setattr("embertide_operator.runtime.polling._TOTAL_SECONDS", 0.3)
    monkeypatch.setattr("embertide_operator.runtime.polling._EVERY_SECONDS", 0.1)
    good = answer(status().to_text().encode())

    async def main(operator: Operator) -> None:
        async with worker(hang) as bad, worker(always(good)) as port:
            for number in range(2 * AT_ONCE):
                operator.follow(bad, f"bad-{number}")
            operator.follow(port, "good")
            await operator.until(lambda: operator.outcomes.count("answered") >= 10)

    run(main)


def test_a_pod_that_is_not_ready_is_not_called_silent() -> None:
    async def main(operator: Operator) -> None:
        async with worker(always(answer(b"", "503 Not yet"))) as port:
            operator.follow(port, ready=False)
            await operator.until(lambda: operator.heard().why)
            assert operator.heard().silent_since is None

    run(main)


def test_what_was_heard_outlives_the_pod_but_not_the_attempt() -> None:
    async def main(operator: Operator) -> None:
        done = status(state="succeeded")
        async with worker(always(answer(done.to_text().encode()))) as port:
            operator.follow(port)
            await operator.until(lambda: operator.heard().report)
            operator.poller.follow(("shop", "a"), None)
            assert operator.heard().report == done
            operator.follow(port, pod=("pod", 1))
            assert operator.heard().report == done
            operator.follow(port, attempt=2)
            assert operator.heard().report is None
            operator.poller.forget(("shop", "a"))
            assert operator.heard(attempt=2) == PollResult()

    run(main)


@pytest.mark.tier(2)
def test_an_error_of_our_own_does_not_end_the_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(operator: Operator) -> None:
        async with worker(always(answer(status().to_text().encode()))) as port:
            failed: list[int] = []

            def fail_once(*_: Any) -> WorkerStatus:
                if not failed:
                    failed.append(1)
                    raise KeyError("oh")
                return status()

            monkeypatch.setattr("embertide_operator.runtime.polling.read_answer", fail_once)
            operator.follow(port)
            await operator.until(lambda: operator.heard().report)

    run(main)


@pytest.mark.parametrize(
    "bad",
    [
        {"progress": {"percent": 101}},
        {"progress": {"percent": -1}},
        {"progress": {"stage": "x" * 2000}},
        {"progress": {"etaSeconds": 2**70}},
        {"progress": {"lastUpdateTime": "yesterday"}},
        {"progress": {"lastUpdateTime": "2026-11-21T12:00:00"}},
        {"output": {"rows": -1}},
        {"output": {"uri": "s3://" + "x" * 2000}},
    ],
    ids=str,
)
def test_fields_that_the_status_cannot_hold_make_it_no_answer(bad: dict[str, Any]) -> None:
    output = OutputReport(version="v", uri="s3://a/b", rows=1, dim=1, manifest_digest="ab")
    whole = json.loads(status(output=output).to_text())
    assert read_answer(json.dumps(whole).encode(), UID, 1).output == output
    for part, fields in bad.items():
        whole[part] |= fields
    with pytest.raises(BadAnswerError):
        read_answer(json.dumps(whole).encode(), UID, 1)


@pytest.mark.parametrize(
    "field", ['"seconds": NaN', '"seconds": 1e999', '"nodes": 1' + "0" * 30, '"grid": "0x0"']
)
def test_a_report_that_the_status_cannot_hold_is_left_out(field: str) -> None:
    """What was published stays published, whatever the report of the run says."""
    report = '{"stages": [], "exchange": [], ' + field + "}"
    text = status(state="succeeded").to_text()[:-1] + f', "report": {report}}}'
    found = read_answer(text.encode(), UID, 1)
    assert (found.state, found.report) == ("succeeded", None)
