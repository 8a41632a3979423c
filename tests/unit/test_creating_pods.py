"""A pod is created once and never changed, by requests over HTTP to a server of the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.client import ApiClient, Configuration

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.transport import ApiError

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "products-plan",
        "namespace": "shop",
        "ownerReferences": [{"uid": "the-job"}],
    },
}


class PodServer(ThreadingHTTPServer):
    """Pods by name: POST creates one or says 409, GET lists those that a field selects."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods: dict[str, Any] = {}
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: PodServer

    def do_POST(self) -> None:
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = pod["metadata"]["name"]
        if name in self.server.pods:
            self._answer(409, {"message": f'pods "{name}" already exists'})
        else:
            self.server.pods[name] = pod
            self._answer(201, pod)

    def do_GET(self) -> None:
        (field,) = parse_qs(urlsplit(self.path).query)["fieldSelector"]
        found = [pod for name, pod in self.server.pods.items() if field == f"metadata.name={name}"]
        self._answer(200, {"items": found, "metadata": {"resourceVersion": "1"}})

    def _answer(self, code: int, body: Any) -> None:
        self.server.asked.append(f"{self.command} {code}")
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def server() -> Iterator[PodServer]:
    with PodServer() as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def api(server: PodServer) -> KubernetesApi:
    host = f"http://127.0.0.1:{server.server_address[1]}"
    return KubernetesApi(ApiClient(Configuration(host=host)))


def test_a_pod_is_created_and_an_own_one_is_left_as_it_is(
    server: PodServer, api: KubernetesApi
) -> None:
    """Such as one that a list did not show yet."""
    for _ in range(2):
        api.create_once(POD)
    assert server.asked == ["POST 201", "POST 409", "GET 200"]
    assert server.pods == {"products-plan": POD}


def test_a_pod_of_another_owner_is_refused_and_not_tried_again_at_once(
    server: PodServer, api: KubernetesApi
) -> None:
    server.pods["products-plan"] = {"metadata": {"name": "products-plan"}}
    with pytest.raises(ApiError, match="Pod/products-plan exists and is not owned") as raised:
        api.create_once(POD)
    assert not raised.value.conflict
    assert not raised.value.retryable
