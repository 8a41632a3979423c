"""The cluster as tests use it: kubectl, S3, namespaces, waiting, and faults on purpose.

Addresses are the same inside and outside: what a pod reaches, the test reaches.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config

from tests.support.cluster.holding import kill_processes
from tests.support.cluster.images import IMAGE_STORE
from tests.support.cluster.layout import FIRST, NODE, S3_PORT, SECOND, Layout, Machine, Settings
from tests.support.cluster.process import NodeProcess
from tests.support.patience import BUSY, WAIT_SECONDS

T = TypeVar("T")
_POLL_SECONDS = 0.1
_LAST_LINES = 15
"""Of each component's log, shown where a node does not start."""


@dataclass(frozen=True)
class ClusterS3:
    """The S3 server on the node; keys are made for each cluster."""

    bucket: str = "embertide-tests"
    region: str = "us-east-1"
    endpoint: str = f"http://{NODE}:{S3_PORT}"
    access_key: str = field(default_factory=lambda: secrets.token_hex(8))
    secret_key: str = field(default_factory=lambda: secrets.token_hex(20))

    @property
    def environment(self) -> dict[str, str]:
        """What the standard credential chain needs, here and in pods."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
        }

    def uri(self, key: str) -> str:
        """An object's or a prefix's URI in the bucket."""
        return f"s3://{self.bucket}/{key}"


class KubernetesCluster:
    """A node with images loaded; ``programs`` and ``images`` by name, as their builders say."""

    def __init__(self, programs: Mapping[str, Path], images: Mapping[str, str]) -> None:
        self.layout = Layout()
        self.s3 = ClusterS3()
        self.images, self.programs = images, programs
        self.node = NodeProcess(
            Settings(
                root=str(self.layout.root),
                programs={name: str(path) for name, path in programs.items()},
                image_store=str(IMAGE_STORE),
                images=tuple(images.values()),
                s3=asdict(self.s3),
            )
        )
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Returns when the node is Ready and has the images."""
        self.node.start()
        self._await_node(FIRST)

    def stop(self) -> None:
        """End it; nothing is left but its files."""
        self.node.stop()

    @property
    def kubeconfig(self) -> Path:
        """For any client on this machine; cluster-admin."""
        return self.layout.kubeconfig

    @property
    def worker_image(self) -> str:
        """What workers and planners run."""
        return self.images["worker"]

    @property
    def operator_image(self) -> str:
        """What the operator runs."""
        return self.images["operator"]

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Standard output of kubectl; AssertionError with what it said where it fails."""
        result = self.try_kubectl(*arguments, input=input)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    def try_kubectl(
        self, *arguments: str, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """kubectl, however it ends."""
        return self._client("kubectl", *arguments, input=input)

    def helm(self, *arguments: str) -> str:
        """Standard output of helm; AssertionError with what it said where it fails."""
        result = self._client("helm", *arguments)
        assert result.returncode == 0, f"helm {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    def get(self, *arguments: str) -> Any:
        """``kubectl get ... -o json``, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    @cached_property
    def _api(self) -> ApiClient:
        client: ApiClient = new_client_from_config(str(self.kubeconfig))
        return client

    def read(self, path: str) -> Any:
        """What the API server has at a path, such as ``/api/v1/namespaces/x/pods``.

        For asking over and over: kubectl takes a hundred times the processor's time.
        """
        accepted = {"Accept": "application/json"}
        request = self._api.param_serialize("GET", path, header_params=accepted)
        answer = self._api.call_api(*request)
        text = answer.read()
        assert answer.status == 200, f"{path}: {text!r}"
        return json.loads(text)

    def try_create(self, path: str, item: Any) -> str:
        """Why the API server would refuse an object at a path; "" where it would take it.

        As ``kubectl create --dry-run=server`` asks it, which takes a hundred times the time.
        """
        kinds = {"Accept": "application/json", "Content-Type": "application/json"}
        query = [("dryRun", "All"), ("fieldValidation", "Strict")]
        request = self._api.param_serialize(
            "POST", path, query_params=query, header_params=kinds, body=item
        )
        answer = self._api.call_api(*request)
        told = json.loads(answer.read())
        return "" if answer.status == 201 else str(told["message"])

    def namespace(self, prefix: str = "test") -> str:
        """A new namespace that enforces Pod Security *restricted*, with the Secret ``s3``."""
        name = f"{prefix}-{next(self._numbers)}"
        self.make_namespace(name)
        return name

    def make_namespace(self, name: str) -> None:
        """The same with a name of one's own choice; it may exist."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        keys = {"name": "s3", "namespace": name}
        objects = [
            {"kind": "Namespace", "metadata": {"name": name, "labels": labels}},
            {"kind": "Secret", "metadata": keys, "stringData": self.s3.environment},
        ]
        items = [{"apiVersion": "v1"} | item for item in objects]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.kubectl("apply", "--server-side", "-f", "-", input=text)
        # Pods cannot be created before it is there.
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        self.wait_for(lambda: self.read(accounts)["items"], 30, "the default account")

    def discard(self, namespace: str) -> None:
        """Delete a namespace with all that is in it, without waiting for that."""
        self.kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")

    def wait_for(
        self,
        condition: Callable[[], T],
        seconds: float = 60.0,
        what: str = "a condition",
        pause: float = _POLL_SECONDS,
    ) -> T:
        """Ask again and again until the answer is true, and return it; AssertionError if never.

        Args:
            seconds: that it takes at most on a machine that does nothing else.
        """
        seconds *= BUSY
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain: {what}"
            time.sleep(pause)
        return found

    def start_second_node(self) -> None:
        """An empty node-2 with the images; returns when it is Ready.

        After a kill, wait until that has been noticed: until then node-2 counts as Ready.
        """
        self.node.order("start", SECOND.name)
        self._await_node(SECOND)

    def kill_second_node(self) -> None:
        """All its processes are gone at once, as when a machine loses power; it stays listed."""
        self.node.order("stop", SECOND.name)

    def kill_kubelet(self) -> None:
        """Its pods run on; the node is NotReady after the grace period of 12 s."""
        self.node.order("stop", "kubelet")

    def start_kubelet(self) -> None:
        """Undo ``kill_kubelet``."""
        self.node.order("start", "kubelet")

    def kill_controllers(self) -> None:
        """No CronJob fires, no Job or StatefulSet gets pods; what runs runs on."""
        self.node.order("stop", "controller-manager")

    def start_controllers(self) -> None:
        """Undo ``kill_controllers``."""
        self.node.order("start", "controller-manager")

    def stop_s3(self) -> None:
        """Kill the S3 server: connections break, new ones are refused; objects stay."""
        self.node.order("stop", "s3")

    def start_s3(self) -> None:
        """Undo ``stop_s3``."""
        self.node.order("start", "s3")

    def kill_in_pod(
        self, namespace: str, pod: str, pattern: str, number: int = signal.SIGKILL
    ) -> int:
        """Signal the processes of a pod whose command line contains ``pattern``.

        ``pod`` may also be the name of what made it (a Deployment). Returns how many processes it
        were; AssertionError if there was none.
        """
        pods = self.get("-n", namespace, "pods")["items"]
        names = {item["metadata"]["name"]: item["metadata"]["uid"] for item in pods}
        chosen = [pod] if pod in names else [name for name in names if name.startswith(f"{pod}-")]
        killed = sum(kill_processes(names[name], pattern, number) for name in chosen)
        assert killed, f"no process with {pattern!r} in pod {namespace}/{pod}"
        return killed

    def offer(self, resource: str, amount: int) -> None:
        """Let the node have an extended resource such as ``nvidia.com/gpu``."""
        path = resource.replace("/", "~1")
        patch = [
            {"op": "add", "path": f"/status/{field}/{path}", "value": str(amount)}
            for field in ("capacity", "allocatable")
        ]
        node = ("node", FIRST.name, "--subresource=status", "--type=json")
        self.kubectl("patch", *node, "-p", json.dumps(patch))

    def audit_events(self, user: str) -> Iterator[dict[str, Any]]:
        """What a user has asked of the API server, oldest first: audit.k8s.io/v1 Events."""
        with (self.layout.logs / "audit.log").open() as log:
            for line in log:
                event: dict[str, Any] = json.loads(line)
                if event["user"].get("username") == user:
                    yield event

    def _await_node(self, machine: Machine) -> None:
        node = ("wait", f"node/{machine.name}", f"--timeout={WAIT_SECONDS:.0f}s")
        try:
            self.kubectl(*node, "--for=create")
            self.kubectl(*node, "--for=condition=Ready")
        except AssertionError as error:
            # The next start makes the logs again; their last lines are the reason.
            for log in sorted(self.layout.logs.glob("*.log")):
                if log.name != "audit.log":
                    lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
                    error.add_note("\n".join([f"{log.name}:", *lines]))
            raise

    def _client(
        self, program: str, *arguments: str, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs[program], *arguments],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
        )
