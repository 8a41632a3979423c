"""One push of an output at a time: of passes that run at once, and while a pod is still there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from embertide.spec.naming import LABEL_JOB, LABEL_ROLE, ROLE_PUSHER
from embertide_operator.runtime.controller import Controller
from tests.support.api_server import ApiServer, api_server
from tests.support.live_controller import JOBS, NAMESPACE, finish, job, make_controller, status

PUSH = {"uri": "postgresql://shop@db/shop", "credentialsSecret": "index"}
OUTPUT = {"version": "20261121T041922Z-3fa9c1"}
_MEETING_SECONDS = 1.0


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """With two jobs of one output, which have published; their versions are to be pushed."""
    with api_server() as serving:
        for second, name in enumerate("ab"):
            published(serving, name, second)
        yield serving


def published(server: ApiServer, name: str, second: int) -> None:
    """A job that is complete."""
    known = server.put(JOBS, job(name, "same", second, push=PUSH))
    server.put(JOBS, known | {"status": {"attempt": 1, "output": OUTPUT}})
    finish(server, name)


@pytest.fixture
def controller(server: ApiServer) -> Controller:
    """It knows all there is, and runs no passes by itself."""
    idle = make_controller(server)
    for kind, store in idle.cache.stores.items():
        items, version = idle.api.read_all(kind, "")
        store.replace("", items, version)
    idle._writes = True
    return idle


def a_pass(controller: Controller, name: str) -> float | None:
    known = controller.cache.get("EmbeddingJob", NAMESPACE, name)
    assert known is not None
    again: float | None = controller._pass.run(known)
    return again


def pods(server: ApiServer) -> list[str]:
    return [name for name in "ab" if server.find("pods", NAMESPACE, f"{name}-push")]


def test_two_passes_at_once_start_one_push(
    server: ApiServer, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have decided before either writes that it has begun, if they may."""
    both_decided = threading.Barrier(2)
    write_status = controller.api.write_status

    def write_together(*arguments: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both_decided.wait(_MEETING_SECONDS)
        return write_status(*arguments)

    monkeypatch.setattr(controller.api, "write_status", write_together)
    with ThreadPoolExecutor(2) as threads:
        passes = [threads.submit(a_pass, controller, name) for name in "ab"]
        again = [ended.result() for ended in passes]
    assert len(pods(server)) == 1
    assert None not in again, "the job that waits comes back"
    (waits,) = {"a", "b"} - {*pods(server)}
    a_pass(controller, waits)
    assert len(pods(server)) == 1
    assert "waiting for the push of shop/" in str(status(server, waits)["conditions"])


def test_a_pod_that_still_pushes_is_waited_for(server: ApiServer, controller: Controller) -> None:
    """Of a request that another one has replaced, or of a push that is no longer asked for."""
    a_pass(controller, "a")
    assert pods(server) == ["a"]
    pod = server.find("pods", NAMESPACE, "a-push")
    assert pod is not None
    assert (pod["metadata"]["labels"][LABEL_JOB], pod["metadata"]["labels"][LABEL_ROLE]) == (
        "a",
        ROLE_PUSHER,
    )
    controller.cache.written(pod)
    known = server.find(JOBS, NAMESPACE, "a")
    assert known is not None
    spec = {name: value for name, value in known["spec"].items() if name != "push"}
    controller.cache.written(server.put(JOBS, known | {"spec": spec}))
    a_pass(controller, "b")
    assert pods(server) == ["a"]
