"""The controller and pushes: one of an output at a time, and none that a restart forgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embertide.spec.reports import PushReport
from tests.support.api_server import ApiServer, api_server
from tests.support.live_controller import JOBS, NAMESPACE, job, live, make_controller, wait_for

pytestmark = pytest.mark.tier(2)

VERSION = "20261121T120000Z-abcdef"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def put_published(server: ApiServer, name: str, output: str) -> None:
    """A job that has published, of whose push no operator knows yet."""
    found = job(name, output, push={"uri": "lancedb+s3://shop/lance"})
    at = "2026-11-21T12:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": "Published", "message": "",
         "lastTransitionTime": at}
        for kind in ("Accepted", "Published", "Complete")
    ]  # fmt: skip
    found["status"] = {
        "phase": "Succeeded",
        "attempt": 1,
        "failures": 0,
        "conditions": conditions,
        "completionTime": at,
        "output": {"version": VERSION},
    }
    server.put(JOBS, found)


def pusher(server: ApiServer, name: str) -> dict[str, Any] | None:
    return server.find("pods", NAMESPACE, f"{name}-push")


def end(server: ApiServer, name: str) -> None:
    """The pod has switched readers."""
    report = PushReport(version=VERSION, rows=10, names=[name], seconds=1.0)
    ended = {"terminated": {"exitCode": 0, "message": report.to_text()}}
    states = [{"name": "worker", "state": ended}]
    pod = pusher(server, name)
    assert pod is not None
    server.put("pods", pod | {"status": {"phase": "Succeeded", "containerStatuses": states}})


def push_of(server: ApiServer, name: str) -> dict[str, Any]:
    found = server.find(JOBS, NAMESPACE, name)
    assert found is not None
    return dict(found["status"].get("push") or {})


def test_a_push_goes_on_after_a_restart_of_the_operator(server: ApiServer) -> None:
    put_published(server, "a", "out")
    with live(make_controller(server)):
        wait_for(lambda: pusher(server, "a"), what="the pod")
    # It is lost while no operator is there to see.
    server.remove("pods", NAMESPACE, "a-push")
    with live(make_controller(server)):
        wait_for(lambda: pusher(server, "a"), what="another pod")
        end(server, "a")
        wait_for(lambda: push_of(server, "a").get("version") == VERSION, what="the end")
        wait_for(lambda: pusher(server, "a") is None, what="the pod's end")
        # The job's objects go once it is over.
        wait_for(lambda: server.find("configmaps", NAMESPACE, "a") is None, what="the end of all")


def test_jobs_of_one_output_push_one_after_the_other(server: ApiServer) -> None:
    put_published(server, "a", "out")
    with live(make_controller(server)):
        wait_for(lambda: pusher(server, "a"), what="the first pod")
        put_published(server, "b", "out")
        put_published(server, "c", "other")
        wait_for(lambda: pusher(server, "c"), what="the pod of another output")
        wait_for(lambda: push_of(server, "b").get("request"), what="the second job's turn")
        assert pusher(server, "b") is None
        end(server, "a")
        wait_for(lambda: pusher(server, "b"), what="the second pod")
        assert push_of(server, "a")["version"] == VERSION
