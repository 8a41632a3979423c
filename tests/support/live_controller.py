"""A controller that runs in this process against the small API server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from embertide_operator.api.rate_limit import RateLimit
from embertide_operator.config.settings import Settings
from embertide_operator.metrics.operator_metrics import Metrics
from embertide_operator.runtime.controller import Controller
from tests.support.api_server import ApiServer
from tests.support.operator_world import raw_job
from tests.support.patience import WAIT_SECONDS

JOBS = "embeddingjobs"
NAMESPACE = "shop"


def make_controller(server: ApiServer, port: int | None = None, **settings: Any) -> Controller:
    """A controller that is not running yet; ``port`` where a proxy stands before the server."""
    given = {"image": "registry.example/worker:1", "resync_seconds": 1.0, "stale_seconds": 30.0}
    found, metrics = Settings(**(given | settings)), Metrics()
    limit = RateLimit(found.api_qps, found.api_burst, metrics.waited)
    api = server.api(port, on_request=metrics.requested, limit=limit)
    return Controller(api, found, metrics)


class Live:
    """A controller that runs in a thread of its own."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.failure: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """By :meth:`Controller.stop`; returns once it has ended."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self.controller.stop(), self.loop)
            self._thread.join(WAIT_SECONDS)
        self.controller.cache.stop()

    def _run(self) -> None:
        async def main() -> None:
            self.loop = asyncio.get_running_loop()
            task = asyncio.create_task(self.controller.run())
            self._started.set()
            await asyncio.wait([task])
            if not task.cancelled():
                self.failure = task.exception()

        asyncio.run(main())


@contextmanager
def live(controller: Controller) -> Iterator[Live]:
    """Runs until the end of the block."""
    found = Live(controller)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def job(name: str, output: str = "", second: int = 0, **spec: Any) -> dict[str, Any]:
    """A job with an output of its own unless one is given, created in this second."""
    found = raw_job(output={"uri": f"s3://shop/{output or name}"}, **spec)
    found["metadata"] |= {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-11-21T11:{second // 60:02}:{second % 60:02}Z",
    }
    return found


def status(server: ApiServer, name: str) -> dict[str, Any]:
    """A job's status, {} before it has one."""
    return (server.find(JOBS, NAMESPACE, name) or {}).get("status") or {}


def finish(server: ApiServer, name: str) -> None:
    """The job has succeeded, as another operator might have written it."""
    found = server.find(JOBS, NAMESPACE, name)
    assert found is not None
    conditions = [{"type": "Complete", "status": "True", "reason": "Published", "message": "",
                   "lastTransitionTime": "2026-11-21T12:00:00Z"}]  # fmt: skip
    done = found["status"] | {
        "phase": "Succeeded",
        "conditions": conditions,
        "completionTime": "2026-11-21T12:00:00Z",
    }
    done.pop("attemptStartTime", None)
    server.put(JOBS, found | {"status": done})


def run_pods(server: ApiServer, name: str, count: int = 2) -> None:
    """The pods of a job's attempt, as a StatefulSet would make them; they run and are ready."""
    attempt = str(status(server, name)["attempt"])
    labels = {"embertide.dev/job": name, "embertide.dev/role": "worker"}
    for rank in range(count):
        server.put("pods", {
            "metadata": {
                "namespace": NAMESPACE,
                "name": f"{name}-{rank}",
                "labels": labels | {"embertide.dev/attempt": attempt,
                                    "embertide.dev/job-uid": f"uid-{name}"},
            },
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.9",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "worker", "state": {"running": {}}}],
            },
        })  # fmt: skip


def wait_for(condition: Callable[[], Any], seconds: float = WAIT_SECONDS, what: str = "it") -> None:
    """Until it is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.005)


def started(server: ApiServer, *names: str) -> bool:
    """Whether all these jobs have their StatefulSet."""
    return all(server.find("statefulsets", NAMESPACE, name) for name in names)


def writes(server: ApiServer) -> int:
    """Requests so far that were to change something."""
    return sum(
        n for (verb, _), n in server.requests.items() if verb not in ("get", "list", "watch")
    )
