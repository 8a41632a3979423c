"""The operator's queue and health, without a cluster."""

from __future__ import annotations

import asyncio
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration

from embertide_operator.api.backoff import Backoff
from embertide_operator.api.client import KubernetesApi, merge_patch
from embertide_operator.api.rate_limit import RateLimit
from embertide_operator.runtime.health import waiting
from embertide_operator.runtime.work_queue import Key, WorkQueue
from tests.support.patience import WAIT_SECONDS

A, B = ("shop", "a"), ("shop", "b")


def test_a_key_is_taken_once_however_often_it_was_added() -> None:
    async def main() -> list[Key]:
        queue = WorkQueue()
        for key in (A, A, B, A):
            queue.add(key)
        taken = []
        for _ in range(2):
            async with queue.next() as key:
                taken.append(key)
        assert len(queue) == 0
        return taken

    assert asyncio.run(main()) == [A, B]


def test_sooner_wins_over_later() -> None:
    async def main() -> None:
        queue = WorkQueue()
        queue.add(A, after=3600)
        queue.add(A)
        queue.add(A, after=3600)
        async with asyncio.timeout(WAIT_SECONDS), queue.next() as key:
            assert key == A

    asyncio.run(main())


def test_a_key_added_during_its_pass_is_worked_on_afterwards_and_never_beside() -> None:
    async def main() -> None:
        queue = WorkQueue()
        queue.add(A)
        async with queue.next():
            queue.add(A)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), queue.next():
                    pytest.fail("nobody else may have it now")
        async with asyncio.timeout(WAIT_SECONDS), queue.next() as key:
            assert key == A

    asyncio.run(main())


def test_a_worker_waits_for_the_moment_and_wakes_for_an_earlier_one() -> None:
    async def main() -> float:
        queue = WorkQueue()
        queue.add(B, after=3600)
        started = time.monotonic()

        async def take() -> Key:
            async with queue.next() as key:
                return key

        waiting = asyncio.create_task(take())
        await asyncio.sleep(0)
        queue.add(A, after=0.05)
        assert await asyncio.wait_for(waiting, WAIT_SECONDS) == A
        return time.monotonic() - started

    assert asyncio.run(main()) >= 0.05


def test_requests_wait_for_their_turn_in_the_order_they_came() -> None:
    now, slept, told = [0.0], [], []
    limit = RateLimit(10, 3, told.append, clock=lambda: now[0], sleep=slept.append)
    for _ in range(5):
        limit.wait()
    assert slept == told == pytest.approx([0.1, 0.2])
    now[0] = 0.2  # what was lent is paid back
    limit.wait()
    assert slept[2:] == pytest.approx([0.1])
    now[0] = 1000.0  # a rest gives the burst again and no more
    for _ in range(4):
        limit.wait()
    assert slept[3:] == pytest.approx([0.1])


def test_waits_double_up_to_a_bound_and_scatter() -> None:
    chance = iter([0.5, 0.5, 0.5, 0.5, 0.0, 1.0])
    backoff: Backoff[str] = Backoff(1.0, 4.0, lambda: next(chance))
    assert [backoff.next("a") for _ in range(4)] == [1, 2, 4, 4]
    assert (backoff.next("a"), backoff.next("a")) == (2, 6)


def test_success_ends_a_backoff_of_one_thing_only() -> None:
    backoff: Backoff[str] = Backoff(1.0, 64.0, lambda: 0.5)
    for _ in range(3):
        backoff.next("a"), backoff.next("b")
    backoff.reset("a")
    assert (backoff.next("a"), backoff.next("b")) == (1, 8)


def test_a_replica_that_waits_is_healthy_while_it_sees_who_leads() -> None:
    assert waiting(10, 60)[0] == 200
    code, _, text = waiting(61, 60)
    assert (code, text) == (503, b"who leads has been unknown for 61 s\n")


def test_a_patch_takes_away_what_is_gone_also_further_down() -> None:
    old = {"a": 1, "same": {"x": 1}, "deep": {"x": 1, "y": 2}, "list": [1, 2]}
    new = {"same": {"x": 1}, "deep": {"x": 3}, "list": [2], "fresh": {"z": 1}}
    assert merge_patch(old, new) == {
        "a": None, "deep": {"x": 3, "y": None}, "list": [2], "fresh": {"z": 1},
    }  # fmt: skip


@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_the_servers_clock_is_known_from_its_answers(minutes: int) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            self.send_header("Date", formatdate(time.time() + 60 * minutes, usegmt=True))
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        host = f"http://127.0.0.1:{server.server_port}"
        api = KubernetesApi(ApiClient(Configuration(host=host)))
        api.get("Pod", "shop", "products-0")
    finally:
        server.shutdown()
        server.server_close()
    assert api.server_ahead == pytest.approx(60 * minutes, abs=60)
