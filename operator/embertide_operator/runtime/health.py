"""``/healthz`` and ``/metrics`` of the operator, served from a separate thread.

Healthy means that what begins also ends: watches hear of the API server, the event loop turns, and
no pass of a job runs for ever. With one of them dead the process would stay alive and do nothing,
so Kubernetes has to restart it. Being late is no reason for that: a restart only makes it later, so
lateness is a metric with an alert.

A replica that waits is healthy while it sees who leads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Thread

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from embertide.spec.http_server import DualStackServer
from embertide_operator.leadership.lease import Leadership
from embertide_operator.runtime.controller import Controller

Answer = tuple[int, str, bytes]


def serve(controller: Controller, leadership: Leadership, port: int) -> DualStackServer:
    """Start serving probes and scrapes, until the process ends."""
    routes = {
        "/healthz": lambda: (
            health(controller)
            if leadership.leads
            else waiting(leadership.silent_seconds(), controller.settings.stale_seconds)
        ),
        "/metrics": lambda: (
            200,
            CONTENT_TYPE_LATEST,
            generate_latest(controller.metrics.registry),
        ),
    }
    server = DualStackServer(port, _handler(routes))
    Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def waiting(silent: float, limit: float) -> Answer:
    """200 while this replica knows that another one leads; else 503 and the reason.

    Args:
        silent: seconds since it was last known who leads.
    """
    if silent > limit:
        return _text(503, f"who leads has been unknown for {silent:.0f} s")
    return _text(200, "ok, another replica leads")


def health(controller: Controller) -> Answer:
    """200 while watches, event loop and passes are alive; else 503 and what is not."""
    limit, now = controller.settings.stale_seconds, time.monotonic()
    silent, kind = controller.cache.silence()
    if silent > limit:
        return _text(503, f"the API server has been silent about {kind} for {silent:.0f} s")
    beat = controller.beat
    if beat is not None and now - beat > limit:
        return _text(503, f"the event loop has stood still for {now - beat:.0f} s")
    running, job = controller.longest_pass()
    if job is not None and running > limit:
        return _text(503, f"a pass of job {'/'.join(job)} has not ended for {running:.0f} s")
    return _text(200, "ok")


def _text(code: int, message: str) -> Answer:
    return code, "text/plain; charset=utf-8", message.encode() + b"\n"


def _handler(routes: dict[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            route = routes.get(self.path)
            code, kind, body = route() if route else _text(404, "try /healthz or /metrics")
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent: probes arrive every few seconds."""

    return Handler
