"""The controller at work: what it asks for, how it waits, and that nothing makes it a zombie."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from embertide_operator.controller import Controller
from embertide_operator.health import health
from embertide_operator.metrics import Metrics
from embertide_operator.observe import holds_output
from embertide_operator.transport import ApiError
from tests.support.api_server import ApiServer, api_server
from tests.support.live_controller import (
    JOBS,
    NAMESPACE,
    finish,
    job,
    live,
    make_controller,
    run_pods,
    status,
    wait_for,
)
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.tcp_proxy import tcp_proxy

KINDS = ("configmaps", "services", "poddisruptionbudgets", "statefulsets", "pods", JOBS)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def started(server: ApiServer, *names: str) -> bool:
    return all(server.find("statefulsets", NAMESPACE, name) for name in names)


def running(server: ApiServer, names: list[str]) -> list[str]:
    return [name for name in names if holds_output(server.find(JOBS, NAMESPACE, name) or {})]


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
        writes = _writes(server)
        with pytest.raises(Exception, match=r"^$"):
            self.a_pass(controller)
        assert _writes(server) == writes


def test_a_conflict_reads_the_job_again_and_goes_on(server: ApiServer) -> None:
    """The watches are dead, so only reading again shows the change."""
    server.put(JOBS, job("a"))
    controller = make_controller(server, resync_seconds=20)
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


class TestNeverAZombie:
    def test_truncated_lists_at_the_start(self, server: ApiServer) -> None:
        server.put(JOBS, job("a"))
        server.truncate_lists = 8
        with live(make_controller(server)):
            wait_for(lambda: started(server, "a"))

    def test_a_task_that_fails_goes_on(
        self, server: ApiServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Every kind of task, once: the resync, a worker, a pass."""
        controller = make_controller(server)
        faults = {"note": 1, "ask": 1, "pass": 1}

        def failing(name: str, real: Any) -> Any:
            def call(*arguments: Any) -> Any:
                faults[name] -= 1
                if faults[name] == 0:
                    raise KeyError(name)
                return real(*arguments)

            return call

        controller._note = failing("note", controller._note)  # type: ignore[method-assign]
        controller._ask = failing("ask", controller._ask)  # type: ignore[method-assign]
        controller._pass.run = failing("pass", controller._pass.run)  # type: ignore[method-assign]
        server.put(JOBS, job("a"))
        with live(controller) as running:
            wait_for(lambda: started(server, "a"))
            assert running.failure is None
        assert all(count <= 0 for count in faults.values())
        assert "the resync failed and goes on" in caplog.text
        assert "a worker failed and goes on" in caplog.text
        assert "shop/a: internal error" in caplog.text

    def test_what_cannot_go_on_ends_the_process_at_once(self, server: ApiServer) -> None:
        """With a message and a code that is not 0, while kopf would go on."""
        program = (
            "import sys\n"
            "from embertide_operator import __main__, controller\n"
            "async def fail(self): raise MemoryError('no room')\n"
            "controller.Controller.run = fail\n"
            "sys.exit(__main__.main())\n"
        )
        kubeconfig = ROOT / ".cache" / f"kubeconfig-{os.getpid()}"
        kubeconfig.parent.mkdir(exist_ok=True)
        kubeconfig.write_text(
            f"{{clusters: [{{name: x, cluster: {{server: 'http://127.0.0.1:{server.port}'}}}}],"
            " contexts: [{name: x, context: {cluster: x, user: x}}], current-context: x,"
            " users: [{name: x, user: {}}], apiVersion: v1, kind: Config}"
        )
        try:
            ended = subprocess.run(
                [sys.executable, "-c", program],
                env=os.environ
                | {"KUBECONFIG": str(kubeconfig), "EMBERTIDE_PORT": str(free_port())},
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            kubeconfig.unlink()
        assert ended.returncode == 1, ended.stderr
        assert "the controller ended, so the operator ends: MemoryError('no room')" in ended.stderr


class TestHealth:
    @pytest.fixture
    def controller(self, server: ApiServer) -> Iterator[Controller]:
        server.put(JOBS, job("a"))
        controller = make_controller(server, stale_seconds=2.0)
        with live(controller):
            wait_for(lambda: started(server, "a"))
            yield controller

    def test_busy_is_not_dead(self, controller: Controller) -> None:
        """A job has been due for ten minutes; passes end, watches hear, the loop turns."""
        controller.queue._due["shop", "late"] = time.monotonic() - 600
        assert controller.queue.lateness() > 599
        wait_for(lambda: health(controller)[0] == 200)
        assert controller.queue.lateness() > 599

    def test_a_pass_that_does_not_end_is_dead(
        self, server: ApiServer, controller: Controller
    ) -> None:
        stuck = server.hold["apply", "statefulsets"] = threading.Event()
        server.put(JOBS, job("stuck"))
        wait_for(lambda: self.says(controller, b"a pass of job shop/stuck has not ended for"))
        stuck.set()
        wait_for(lambda: health(controller)[0] == 200)

    def test_an_api_server_that_lets_nobody_in_is_dead(
        self, server: ApiServer, controller: Controller
    ) -> None:
        for verb in ("list", "watch"):
            server.refuse[verb, "services"] = 403
        wait_for(lambda: self.says(controller, b"silent about Service for"))
        server.refuse.clear()
        wait_for(lambda: health(controller)[0] == 200)

    def test_a_loop_that_stands_still_is_dead(self, controller: Controller) -> None:
        def stand_still() -> bool:
            """Until its next sign of life, which may come before we look."""
            assert controller.beat is not None
            controller.beat -= 3
            return self.says(controller, b"the event loop has stood still")

        wait_for(stand_still)

    def says(self, controller: Controller, text: bytes) -> bool:
        code, _, found = health(controller)
        return code == 503 and text in found


class TestStop:
    def test_it_ends_all_writes_and_can_run_again(self, server: ApiServer) -> None:
        server.put(JOBS, job("a"))
        controller = make_controller(server)
        with live(controller) as first:
            wait_for(lambda: started(server, "a"))
            first.stop()
            server.put(JOBS, job("b"))
            writes = _writes(server)
            time.sleep(0.3)
            assert _writes(server) == writes
        with live(controller):
            wait_for(lambda: started(server, "b"))

    def test_a_pass_under_way_writes_no_more(self, server: ApiServer) -> None:
        """It is stopped between its status and its objects, in the middle of the first."""
        server.put(JOBS, job("a"))
        first = server.hold["apply", "configmaps"] = threading.Event()
        controller = make_controller(server)
        with live(controller) as running:
            wait_for(lambda: server.requests["apply", "configmaps"] == 1)
            stopping = threading.Thread(target=running.stop)
            stopping.start()
            wait_for(lambda: not controller._writes)
            first.set()
            stopping.join()
        assert server.requests["apply", "configmaps"] == 1
        assert not started(server, "a")

    def test_watches_may_be_warm_before(self, server: ApiServer) -> None:
        server.put(JOBS, job("a"))
        controller = make_controller(server)
        controller.warm()
        wait_for(lambda: controller.cache.synced)
        assert health(controller)[0] == 200
        assert _writes(server) == 0
        with live(controller):
            wait_for(lambda: started(server, "a"))


def test_through_a_network_that_cuts_delays_and_resets(server: ApiServer) -> None:
    """Every few moments all connections end; each job is started once all the same."""
    names = [f"job{number}" for number in range(8)]
    with tcp_proxy("127.0.0.1", server.port) as proxy:
        controller = make_controller(server, proxy.port)
        with live(controller) as running:
            wait_for(lambda: controller.cache.synced)
            proxy.delay_seconds = 0.01
            for number, name in enumerate(names):
                server.put(JOBS, job(name))
                time.sleep(0.05)
                if number % 3 == 0:
                    proxy.cut()
                elif number % 3 == 1:
                    proxy.reset()
                else:
                    proxy.cut_after = 300
            wait_for(lambda: started(server, *names))
            assert running.failure is None
    assert [status(server, name)["attempt"] for name in names] == [1] * len(names)


def _ready(found: dict[str, Any]) -> bool:
    conditions = {item["type"]: item["status"] for item in found.get("conditions", [])}
    return conditions.get("WorkersReady") == "True"


def _passes(metrics: Metrics) -> float:
    name, labels = "embertide_operator_reconciles_total", {"outcome": "ok"}
    return metrics.registry.get_sample_value(name, labels) or 0.0


def _attempt_series(metrics: Metrics) -> float | None:
    labels = {"job_namespace": NAMESPACE, "job_name": "a"}
    return metrics.registry.get_sample_value("embertide_job_attempt", labels)


def _writes(server: ApiServer) -> int:
    return sum(
        n for (verb, _), n in server.requests.items() if verb not in ("get", "list", "watch")
    )
