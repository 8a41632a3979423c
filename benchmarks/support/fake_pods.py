"""Pods that no node holds: their status is written through the API, and one server answers for all.

The StatefulSet controller makes the pods of a job; a scheduler that does not exist leaves them
Pending. Each then gets an address of this machine's loopback network and becomes Ready, as a
kubelet would say it, and a worker's ``/status`` is served at that address.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from typing import Any

from kubernetes.client import ApiClient

from embertide.spec.naming import HTTP_PORT, LABEL_ATTEMPT, LABEL_JOB, LABEL_ROLE, ROLE_WORKER
from embertide.spec.reports import ProgressReport, WorkerStatus
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError

SCHEDULER = "nobody"
"""``schedulerName`` of these pods: there is none of this name."""
_FIRST_ADDRESS = IPv4Address("127.9.0.1")
_WATCH_SECONDS = 30


def send(client: ApiClient, method: str, path: str, body: Any, kind: str = "") -> Object:
    """One request; raises RuntimeError with what the API server said."""
    content = f"application/{kind}+json" if kind else "application/json"
    headers = {"Accept": "application/json", "Content-Type": content}
    prepared = client.param_serialize(method, path, header_params=headers, body=body)
    answer = client.call_api(*prepared, _request_timeout=30)
    text = answer.read()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {text!r}")
    found: Object = json.loads(text)
    return found


class FakePods:
    """Makes every pod of a job run; call :meth:`start` once."""

    def __init__(self, client: ApiClient, uids: dict[str, str]) -> None:
        """``uids``: the UIDs of jobs by name, which grow while this runs."""
        self._client, self._api, self._uids = client, KubernetesApi(client), uids
        self._reports: dict[str, tuple[str, int]] = {}  # job and attempt by address
        self._numbers, self._stopped = itertools.count(), False
        self._server = ThreadingHTTPServer(("0.0.0.0", HTTP_PORT), _handler(self))
        self._server.daemon_threads = True

    def start(self) -> None:
        """Begin, in threads that end with the process."""
        for target in (self._server.serve_forever, self._follow):
            threading.Thread(target=target, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._stopped = True
        self._server.shutdown()
        self._server.server_close()

    def status(self, address: str) -> bytes | None:
        """What the worker at an address says; None where there is none."""
        if address not in self._reports:
            return None
        job, attempt = self._reports[address]
        # Jobs get further at different moments.
        now = time.time() + int(IPv4Address(address)) % 97 / 9.7
        progress = ProgressReport(
            stage="infer",
            layer=1,
            layers=3,
            percent=20 + int(now / 10) % 50,
            last_update_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        )
        uid = self._uids.get(job, "")
        status = WorkerStatus(
            job_uid=uid, attempt=attempt, rank=0, state="running", progress=progress
        )
        return status.to_text().encode()

    def _follow(self) -> None:
        while not self._stopped:
            try:
                pods, version = self._api.read_all("Pod", "", labels=LABEL_JOB)
                for pod in pods:
                    self._run(pod)
                for kind, pod in self._api.watch(
                    "Pod", "", version, _WATCH_SECONDS, labels=LABEL_JOB
                ):
                    if kind == "ADDED":
                        self._run(pod)
            except ApiError as error:
                print(f"fake pods: {error}")
                time.sleep(0.2)

    def _run(self, pod: Object) -> None:
        meta = pod["metadata"]
        labels = meta["labels"]
        ours = pod["spec"].get("schedulerName") == SCHEDULER and labels[LABEL_ROLE] == ROLE_WORKER
        if not ours or (pod.get("status") or {}).get("podIP"):
            return
        address = str(_FIRST_ADDRESS + next(self._numbers))
        self._reports[address] = labels[LABEL_JOB], int(labels[LABEL_ATTEMPT])
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        container = {
            "name": "worker", "image": "none", "imageID": "none", "ready": True,
            "started": True, "restartCount": 0, "state": {"running": {"startedAt": began}},
        }  # fmt: skip
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": began}
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": began,
            "conditions": [condition],
            "containerStatuses": [container],
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        try:
            send(self._client, "PATCH", path, {"status": status}, "strategic-merge-patch")
        except RuntimeError as error:  # it may be gone already
            print(f"fake pods: {error}")


def _handler(pods: FakePods) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = pods.status(self.connection.getsockname()[0])
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler
