"""The controller goes on through faults, says when it cannot, and stops when told to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from embertide_operator.runtime.controller import Controller
from embertide_operator.runtime.health import health
from tests.support.api_server import ApiServer, api_server
from tests.support.live_controller import (
    JOBS,
    job,
    live,
    make_controller,
    started,
    status,
    wait_for,
    writes,
)
from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port
from tests.support.tcp_proxy import tcp_proxy

pytestmark = pytest.mark.tier(2)

KINDS = ("configmaps", "services", "poddisruptionbudgets", "statefulsets", "pods", JOBS)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


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
        controller._follow_rank_zero = failing("ask", controller._follow_rank_zero)  # type: ignore[method-assign]
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
            "from embertide_operator import __main__\n"
            "from embertide_operator.runtime import controller\n"
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
                timeout=WAIT_SECONDS,
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
            """Until its next heartbeat, which may come before we look."""
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
            before = writes(server)
            time.sleep(0.3)
            assert writes(server) == before
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
        assert writes(server) == 0
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
