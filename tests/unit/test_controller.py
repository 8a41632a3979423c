"""The controller at work: what it asks for, how it waits, and that nothing makes it a zombie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from embertide_operator.api.transport import ApiError
from embertide_operator.job.observe import holds_output
from embertide_operator.metrics.operator_metrics import Metrics
from embertide_operator.runtime.controller import Controller
from tests.support.api_server import ApiServer, api_server
from tests.support.live_controller import (
    JOBS,
    NAMESPACE,
    finish,
    job,
    live,
    make_controller,
    run_pods,
    started,
    status,
    wait_for,
    writes,
)

KINDS = ("configmaps", "services", "poddisruptionbudgets", "statefulsets", "pods", JOBS)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def running(server: ApiServer, names: list[str]) -> list[str]:
    return [name for name in names if holds_output(server.find(JOBS, NAMESPACE, name) or {})]


@pytest.mark.tier(2)
def test_a_running_job_costs_no_request(server: ApiServer) -> None:
    """Passes go on every two seconds, and read nothing but the cache."""
    server.put(JOBS, job("a"))
    controller = make_controller(server, resync_seconds=600)
    with live(controller):
        wait_for(lambda: started(server, "a"))
        run_pods(server, "a")
        wait_for(lambda: _ready(status(server, "a")))
        # What its becoming ready asks for may still be under way in the first of them.
        wait_for(lambda: not _asked_in_two_passes(server, controller))


def _asked_in_two_passes(server: ApiServer, controller: Controller) -> Counter[tuple[str, str]]:
    passes, before = _passes(controller.metrics), server.requests.copy()
    wait_for(lambda: _passes(controller.metrics) >= passes + 2)
    return server.requests - before


def test_its_first_pass_reads_everything_once(server: ApiServer) -> None:
    server.put(JOBS, job("a"))
    controller = make_controller(server, resync_seconds=600)
    with live(controller):
        wait_for(lambda: started(server, "a"))
    # And once the ConfigMap in which operators show life.
    assert server.requests["get", "configmaps"] == 2
    for kind in KINDS[1:-2]:
        assert server.requests["get", kind] == 1, kind
    assert server.requests["apply", "statefulsets"] == 1


class TestOldPicture:
    """The cache is behind: it saw a list, and none of what came after."""

    @pytest.fixture
    def controller(self, server: ApiServer) -> Controller:
        server.put(JOBS, job("a"))
        found = make_controller(server)
        for kind, store in found.cache.stores.items():
            items, version = found.api.read_all(kind, "")
            store.replace("", items, version)
        found._writes = True
        return found

    def a_pass(self, controller: Controller) -> float | None:
        known = controller.cache.get("EmbeddingJob", NAMESPACE, "a")
        assert known is not None
        again: float | None = controller._pass.run(known)
        return again

    def test_an_attempt_that_another_replica_started_is_not_started_again(
        self, server: ApiServer, controller: Controller
    ) -> None:
        other = make_controller(server)
        other._writes = True
        other._pass.run(server.find(JOBS, NAMESPACE, "a") or {})
        assert status(server, "a")["attempt"] == 1
        self.a_pass(controller)
        assert status(server, "a")["attempt"] == 1
        assert server.requests["apply", "statefulsets"] == 1

    def test_pods_that_it_has_not_seen_are_waited_for(
        self, server: ApiServer, controller: Controller
    ) -> None:
        """Of the attempt before, whose end another replica has written."""
        found = server.find(JOBS, NAMESPACE, "a") or {}
        ended = {"phase": "Restarting", "attempt": 1, "failures": 0, "versions": ["v1"]}
        known = server.put(JOBS, found | {"status": ended, "kind": "EmbeddingJob"})
        controller.cache.written(known)
        run_pods(server, "a")
        self.a_pass(controller)
        assert status(server, "a")["attempt"] == 1

    def test_what_it_wrote_itself_it_knows_at_once(
        self, server: ApiServer, controller: Controller
    ) -> None:
        for _ in range(3):
            self.a_pass(controller)
        assert status(server, "a")["attempt"] == 1
        assert server.requests["apply", "statefulsets"] == 1

    def test_a_progress_on_an_old_job_is_a_conflict(
        self, server: ApiServer, controller: Controller
    ) -> None:
        self.a_pass(controller)
        run_pods(server, "a")
        for pod in controller.api.pods(NAMESPACE, "a"):
            controller.cache.written(pod)
        server.put(JOBS, (server.find(JOBS, NAMESPACE, "a") or {}) | {"spec": {}})
        with pytest.raises(ApiError) as found:
            self.a_pass(controller)
        assert found.value.conflict

    def test_without_the_lead_nothing_is_written(
        self, server: ApiServer, controller: Controller
    ) -> None:
        controller._writes = False
        before = writes(server)
        with pytest.raises(Exception, match=r"^$"):
            self.a_pass(controller)
        assert writes(server) == before


def test_a_conflict_reads_the_job_again_and_goes_on(server: ApiServer) -> None:
    """The watches are dead, so only reading again shows the change."""
    server.put(JOBS, job("a"))
    controller = make_controller(server, resync_seconds=600)
    with live(controller):
        wait_for(lambda: started(server, "a"))
        controller.cache.stop()
        run_pods(server, "a")
        pods = controller.api.pods(NAMESPACE, "a")
        made = server.find("statefulsets", NAMESPACE, "a") or {}
        controller.cache.keep_events(made["metadata"]["uid"], "FailedCreate", [])
        server.put(JOBS, (server.find(JOBS, NAMESPACE, "a") or {}) | {"note": "changed"})
        for pod in pods:
            controller.cache.written(pod)
        wait_for(lambda: _ready(status(server, "a")))
    assert controller.metrics.registry.get_sample_value(
        "embertide_operator_reconciles_total", {"outcome": "conflict"}
    )


@pytest.mark.tier(2)
def test_jobs_that_wait_for_an_output_take_no_worker(server: ApiServer) -> None:
    """Thirty wait for one output, whose next job starts as soon as the first has ended."""
    names = [f"w{number:02}" for number in range(30)]
    for second, name in enumerate(names):
        server.put(JOBS, job(name, "same", second))
    controller = make_controller(server, resync_seconds=600)
    with live(controller):
        wait_for(lambda: all(status(server, name) for name in names))
        assert running(server, names) == ["w00"]
        server.put(JOBS, job("other"))
        wait_for(lambda: started(server, "other"))
        finish(server, "w00")
        wait_for(lambda: started(server, "w01"))
        assert running(server, names) == ["w01"]


def test_queued_jobs_start_in_order_when_room_appears(server: ApiServer) -> None:
    names = [f"q{number}" for number in range(6)]
    for second, name in enumerate(names):
        server.put(JOBS, job(name, second=second))
    controller = make_controller(server, max_running_jobs=2, resync_seconds=600)
    with live(controller):
        wait_for(lambda: all(status(server, name) for name in names))
        wait_for(lambda: started(server, "q0", "q1"))
        assert running(server, names) == ["q0", "q1"]
        reasons = [item["reason"] for item in status(server, "q2")["conditions"]]
        assert "Queued" in reasons
        finish(server, "q1")
        wait_for(lambda: started(server, "q2"))
        server.remove(JOBS, NAMESPACE, "q0")
        wait_for(lambda: started(server, "q3"))
        assert running(server, names) == ["q2", "q3"]


def test_the_series_of_a_deleted_job_go(server: ApiServer) -> None:
    server.put(JOBS, job("a"))
    controller = make_controller(server)
    with live(controller):
        wait_for(lambda: _attempt_series(controller.metrics) is not None)
        server.remove(JOBS, NAMESPACE, "a")
        wait_for(lambda: _attempt_series(controller.metrics) is None)


def _ready(found: dict[str, Any]) -> bool:
    conditions = {item["type"]: item["status"] for item in found.get("conditions", [])}
    return conditions.get("WorkersReady") == "True"


def _passes(metrics: Metrics) -> float:
    name, labels = "embertide_operator_reconciles_total", {"outcome": "ok"}
    return metrics.registry.get_sample_value(name, labels) or 0.0


def _attempt_series(metrics: Metrics) -> float | None:
    labels = {"job_namespace": NAMESPACE, "job_name": "a"}
    return metrics.registry.get_sample_value("embertide_job_attempt", labels)
