"""A small API server: lists, watches and writes of JSON objects over HTTP, in this process.

For what the real one cannot be made to do in a test of milliseconds: truncate a list, forget its
history, count what one pass asked for. It keeps resource versions, conditional writes of status and
bookmarks as Kubernetes does, and knows neither schemas nor controllers.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kubernetes.client import ApiClient, Configuration

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import request_of

Object = dict[str, Any]
_POLL_SECONDS = 0.01


class ApiServer:
    """Objects by plural, namespace and name, and every change of them in order.

    Attributes:
        requests: how often each (verb, resource) was asked.
        truncate_lists: how many more lists end in the middle, as valid HTTP.
        refuse: HTTP status by verb and resource, for those that are refused.
        slow_seconds: how long every write takes.
        hold: writes by verb and resource that wait for an event before anything is written.
        logs: what pods have logged, by name.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.truncate_lists = 0
        self.refuse: dict[tuple[str, str], int] = {}
        self.slow_seconds = 0.0
        self.hold: dict[tuple[str, str], threading.Event] = {}
        self.logs: dict[str, str] = {}
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._history: list[tuple[int, str, str, Object]] = []  # version, plural, type, object
        self._version, self._oldest = 10, 0
        self._lock = threading.RLock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def api(self, port: int | None = None, **more: Any) -> KubernetesApi:
        """A client; by another port where something stands between."""
        configuration = Configuration(host=f"http://127.0.0.1:{port or self.port}")
        configuration.retries = False
        configuration.connection_pool_maxsize = 32
        return KubernetesApi(ApiClient(configuration), **more)

    def put(self, plural: str, item: Object) -> Object:
        """Create or replace an object."""
        with self._lock:
            key = (plural, item["metadata"]["namespace"], item["metadata"]["name"])
            kind = "MODIFIED" if key in self._objects else "ADDED"
            self._version += 1
            meta = {"uid": f"uid-{self._version}", "generation": 1} | item["metadata"]
            meta["resourceVersion"] = str(self._version)
            self._objects[key] = {**item, "metadata": meta}
            self._history.append((self._version, plural, kind, self._objects[key]))
            return self._objects[key]

    def remove(self, plural: str, namespace: str, name: str, *, silently: bool = False) -> None:
        """Delete an object; silently, no watch tells of it."""
        with self._lock:
            found = self._objects.pop((plural, namespace, name))
            self._version += 1
            meta = {**found["metadata"], "resourceVersion": str(self._version)}
            if not silently:
                gone = {**found, "metadata": meta}
                self._history.append((self._version, plural, "DELETED", gone))

    def forget_history(self) -> None:
        """Every watch from an earlier version is told that it is too old."""
        with self._lock:
            self._version += 1
            self._oldest = self._version

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        with self._lock:
            return self._objects.get((plural, namespace, name))

    def listed(self, plural: str, namespace: str, labels: str) -> tuple[list[Object], int]:
        with self._lock:
            found = [
                item
                for (of, place, _), item in self._objects.items()
                if of == plural and namespace in ("", place) and _has(item, labels)
            ]
            return found, self._version

    def changes(
        self, plural: str, namespace: str, labels: str, version: int, seconds: float
    ) -> Iterator[Object]:
        """The events of a watch, and a bookmark at its end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self._lock:
                if version < self._oldest:
                    yield {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
                    return
                fresh = [event for event in self._history if event[0] > version]
                version = self._version
            for _, of, kind, item in fresh:
                place = item["metadata"]["namespace"]
                if of == plural and namespace in ("", place) and _has(item, labels):
                    yield {"type": kind, "object": item}
            if not fresh:
                time.sleep(_POLL_SECONDS)
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """A server, closed at the end."""
    server = ApiServer()
    try:
        yield server
    finally:
        server.close()


def _has(item: Object, labels: str) -> bool:
    """Whether an object has all of these labels, each alone or with a value."""
    found = item["metadata"].get("labels") or {}
    pairs = (text.partition("=") for text in labels.split(",") if text)
    return all(
        found.get(name) == value if equals else name in found for name, equals, value in pairs
    )


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            query = dict(parse_qsl(address.query))
            if address.path.endswith("/log"):
                self.say_log(address.path.split("/")[-2], int(query["tailLines"]))
                return
            plural, namespace, name = self.target("GET", "watch" in query)
            if self.refused:
                return
            labels = query.get("labelSelector", "")
            if "watch" in query:
                self.stream(plural, namespace, labels, query)
            elif name:
                found = server.find(plural, namespace, name)
                missing = {"message": "not found", "details": {"name": name}}
                self.say(200 if found else 404, found or missing)
            else:
                items, version = server.listed(plural, namespace, labels)
                answer = {"items": items, "metadata": {"resourceVersion": str(version)}}
                self.say(200, answer, cut=self.cuts())

        def do_PATCH(self) -> None:
            time.sleep(server.slow_seconds)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            plural, namespace, name = self.target("PATCH")
            if self.refused:
                return
            old = server.find(plural, namespace, name)
            wanted = (body.get("metadata") or {}).get("resourceVersion")
            if old and wanted and wanted != old["metadata"]["resourceVersion"]:
                self.say(409, {"message": "the object has been modified"})
            elif "status" in body:
                self.say(200, server.put(plural, _merged(old or {}, {"status": body["status"]})))
            elif "apply" in self.headers["Content-Type"]:
                uid = {"uid": old["metadata"]["uid"]} if old else {}
                body["metadata"] = uid | body["metadata"]
                self.say(200, server.put(plural, {**(old or {}), **body}))
            else:
                self.say(200, server.put(plural, _merged(old or {}, body)))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            plural, *_ = self.target("POST")
            if not self.refused:
                self.say(201, server.put(plural, body))

        def do_DELETE(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            plural, namespace, name = self.target("DELETE")
            if self.refused:
                return
            names = [name]
            if not name:  # a collection
                labels = dict(parse_qsl(urlsplit(self.path).query))["labelSelector"]
                items, _ = server.listed(plural, namespace, labels)
                names = [item["metadata"]["name"] for item in items]
            for each in names:
                server.remove(plural, namespace, each)
            self.say(200, {})

        def target(self, method: str, watch: bool = False) -> tuple[str, str, str]:
            """(plural, namespace, name); the request is counted."""
            path = urlsplit(self.path).path
            verb, resource = request_of(method, path, self.headers.get("Content-Type", ""))
            verb = "watch" if watch else verb
            server.requests[verb, resource] += 1
            if (verb, resource) in server.hold:
                server.hold[verb, resource].wait()
            self.refused = (verb, resource) in server.refuse
            if self.refused:
                self.say(server.refuse[verb, resource], {"message": "refused"})
            parts = path.split("/")[3 if path.startswith("/api/") else 4 :]
            namespace = parts[1] if parts[0] == "namespaces" else ""
            parts = parts[2:] if namespace else parts
            return parts[0], namespace, parts[1] if len(parts) > 1 else ""

        def cuts(self) -> bool:
            with server._lock:
                server.truncate_lists -= 1
                return server.truncate_lists >= 0

        def stream(self, plural: str, namespace: str, labels: str, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            version, seconds = int(query["resourceVersion"]), float(query["timeoutSeconds"])
            try:
                for event in server.changes(plural, namespace, labels, version, seconds):
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def say_log(self, pod: str, tail: int) -> None:
            if pod not in server.logs:
                details = {"name": pod, "kind": "pods"}
                self.say(404, {"message": f'pods "{pod}" not found', "details": details})
                return
            lines = server.logs[pod].splitlines(keepends=True)[-tail:]
            self.say_text(200, "".join(lines).encode())

        def say(self, code: int, body: Object, *, cut: bool = False) -> None:
            data = json.dumps(body).encode()
            self.say_text(code, data[: len(data) // 2] if cut else data)

        def say_text(self, code: int, data: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler


def _merged(old: Object, patch: Object) -> Object:
    """A JSON merge patch (RFC 7386), applied."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            new[key] = _merged(new.get(key) or {}, value)
        else:
            new[key] = value
    return new
