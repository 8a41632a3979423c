"""A control plane without nodes: etcd, API server and controllers as processes of this machine.

The programs are those of the test cluster (``tests/support/go_programs.py``), its addresses are
not: everything listens on ports of 127.0.0.1, needs no root and can run beside it. Objects are all
there, and StatefulSets get their pods, which no node takes.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config
from urllib3.exceptions import HTTPError

from tests.support.cluster.pki import Authority, Subject
from tests.support.cluster.programs import build_all

_START_SECONDS = 60.0
_OK = 200
_CONTROLLERS = "statefulset-controller,garbage-collector-controller,namespace-controller,"
_MORE_CONTROLLERS = "serviceaccount-controller,disruption-controller"


@contextmanager
def control_plane() -> Iterator[Path]:
    """The kubeconfig of a cluster administrator; all is gone at the end.

    Raises:
        RuntimeError: a program ended, or the API server did not become ready.
    """
    programs = {name: str(path) for name, path in build_all().items()}
    with tempfile.TemporaryDirectory(prefix="embertide-control-plane-") as name, ExitStack() as end:
        folder, ports = Path(name), _free_ports(3)
        keys = Authority(folder / "keys")
        keys.issue("apiserver", Subject("kube-apiserver", names=("IP:127.0.0.1",)))
        keys.issue("admin", Subject("benchmark", "system:masters"))
        keys.issue_token_key("service-account")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(keys.kubeconfig("admin", f"https://127.0.0.1:{ports[2]}"))
        for program, options in (
            ("etcd", _etcd_options(folder, ports)),
            ("kube-apiserver", _api_options(folder, ports)),
        ):
            end.enter_context(_running([programs[program], *options], folder / f"{program}.log"))
        _await_ready(kubeconfig, folder)
        options = [
            f"--kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={folder}/keys/service-account.key",
            f"--controllers={_CONTROLLERS}{_MORE_CONTROLLERS}",
            "--leader-elect=false",
            "--secure-port=0",
            "--concurrent-statefulset-syncs=10",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ]
        log = folder / "controllers.log"
        end.enter_context(_running([programs["kube-controller-manager"], *options], log))
        yield kubeconfig


def _etcd_options(folder: Path, ports: list[int]) -> list[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
    return [
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        "--unsafe-no-fsync",
    ]


def _api_options(folder: Path, ports: list[int]) -> list[str]:
    keys = folder / "keys"
    return [
        f"--etcd-servers=http://127.0.0.1:{ports[0]}",
        f"--secure-port={ports[2]}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--client-ca-file={keys}/ca.crt",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys}/service-account.pub",
        f"--service-account-signing-key-file={keys}/service-account.key",
        "--service-cluster-ip-range=198.19.0.0/16",
        "--endpoint-reconciler-type=none",
    ]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in found]


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=log.parent)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(kubeconfig: Path, folder: Path) -> None:
    client: ApiClient = new_client_from_config(str(kubeconfig))
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            if client.call_api(*client.param_serialize("GET", "/readyz")).status == _OK:
                return
        except HTTPError:
            pass
        if time.monotonic() > until:
            log = (folder / "kube-apiserver.log").read_text(errors="replace")
            raise RuntimeError(f"the API server is not ready: {log[-2000:]}")
        time.sleep(0.2)
