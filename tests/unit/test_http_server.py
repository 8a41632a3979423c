"""Worker and operator answer on both families of addresses, or on the one that there is."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Thread

import pytest

from embertide.pod import http
from embertide.spec.http_server import DualStackServer
from tests.support.patience import WAIT_SECONDS

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the system has no IPv6")


@contextmanager
def served() -> Iterator[int]:
    """The port of a server that says nothing but 204."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    with DualStackServer(0, Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def code_of(host: str, port: int, path: str = "/") -> int:
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=WAIT_SECONDS) as answer:
        return int(answer.status)


@needs_ipv6
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_both_families_are_served(host: str) -> None:
    with served() as port:
        assert code_of(host, port) == HTTPStatus.NO_CONTENT


@needs_ipv6
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_worker_serves_both(host: str) -> None:
    port = http.serve(0, {"/healthz": lambda: http.text_page(HTTPStatus.OK, "ok")})
    assert code_of(host, port, "/healthz") == HTTPStatus.OK


def test_a_system_without_ipv6_is_served_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", bool)
    with served() as port:
        assert code_of("127.0.0.1", port) == HTTPStatus.NO_CONTENT


def test_a_port_that_is_taken_is_an_error() -> None:
    with served() as port, pytest.raises(OSError, match="in use"):
        DualStackServer(port, BaseHTTPRequestHandler)
