"""A proxy before a real S3 server, which changes the answers that a test wants to be different.

Requests are forwarded as they came, with the host that the client signed, so that the server checks
them itself; only what a test replaces does not come from it.
"""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, urlsplit

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclass(frozen=True)
class Request:
    """What a client sent. ``query`` has the first value of each parameter."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """Bucket and key, with a slash before them."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """Parameters, also those without a value."""
        asked = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[0] for name, values in asked.items()}


@dataclass(frozen=True)
class Answer:
    """What a client is answered; the length is added."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def error(status: int, code: str, message: str = "as the test wants it") -> Answer:
    """An error as S3 writes it."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, text.encode(), {"Content-Type": "application/xml"})


Forward = Callable[[Request], Answer]


def passing(request: Request, forward: Forward) -> Answer:
    """The server's own answer."""
    return forward(request)


class S3Proxy:
    """Forwards to one server; ``rule`` makes each answer, from the server's or without it.

    Attributes:
        rule: called in several threads at once.
        seen: the requests so far.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.rule: Callable[[Request, Forward], Answer] = passing
        self.seen: list[Request] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                headers = dict(self.headers.items())
                request = Request(self.command, self.path, headers, body)
                proxy.seen.append(request)
                self._send(proxy.rule(request, proxy.forward))

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                given = {name.lower(): value for name, value in answer.headers.items()}
                for name, value in given.items():
                    if name not in _HOP:
                        self.send_header(name, value)
                # An answer to HEAD has the length of what it does not send.
                length = given.get("content-length", "0") if self.command == "HEAD" else ""
                self.send_header("Content-Length", length or str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                """Nothing on stderr."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        serve = {"poll_interval": 0.01}
        threading.Thread(target=self._server.serve_forever, kwargs=serve, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def forward(self, request: Request) -> Answer:
        """The server's answer."""
        connection = http.client.HTTPConnection(*self._target, timeout=60)
        try:
            headers = {n: v for n, v in request.headers.items() if n.lower() != "expect"}
            connection.request(request.method, request.target, request.body, headers)
            got = connection.getresponse()
            return Answer(got.status, got.read(), dict(got.getheaders()))
        finally:
            connection.close()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def with_headers(answer: Answer, **headers: str) -> Answer:
    """The answer with other headers; an underscore in a name is a hyphen."""
    lower = {name.lower(): value for name, value in answer.headers.items()}
    changed = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    return replace(answer, headers=lower | changed)


@contextmanager
def s3_proxy(endpoint: str) -> Iterator[S3Proxy]:
    """A proxy before the server at an endpoint, closed at the end."""
    at = urlsplit(endpoint)
    assert at.hostname is not None
    assert at.port is not None
    proxy = S3Proxy(at.hostname, at.port)
    try:
        yield proxy
    finally:
        proxy.close()
