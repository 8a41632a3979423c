"""The worker's HTTP server: /healthz for the kubelet, /status for the operator, /metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from embertide.spec.http_server import DualStackServer

_TEXT = "text/plain; charset=utf-8"
_CLIENT_SECONDS = 10.0

Page = Callable[[], tuple[HTTPStatus, str, bytes]]


def text_page(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    """A page of plain text."""
    return status, _TEXT, f"{text}\n".encode()


class _Server(DualStackServer):
    request_queue_size = 64
    pages: dict[str, Page]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no event."""


class _Handler(BaseHTTPRequestHandler):
    # So that a client that says nothing does not hold its thread for good.
    timeout = _CLIENT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        try:
            found = page() if page else text_page(HTTPStatus.NOT_FOUND, "not found")
        except Exception as error:
            found = text_page(HTTPStatus.INTERNAL_SERVER_ERROR, repr(error))
        status, kind, body = found
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Probes and scrapes are no events either."""


def serve(port: int, pages: dict[str, Page]) -> int:
    """Serve pages by path from threads that end with the process; returns the port.

    Raises:
        OSError: the port is taken.
    """
    server = _Server(port, _Handler)
    server.pages = pages
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return int(server.server_address[1])
