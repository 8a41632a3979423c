"""Kueue's own controller for one namespace of the test cluster, run on this machine.

It is a process beside the cluster, as an administrator; the API server calls its webhooks here. Its
certificates have a fixed place below ``/etc``, so it sees an ``/etc`` of its own.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.layout import HOST
from tests.support.cluster.pki import Authority, Subject
from tests.support.go_programs import MODULES, find_go
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS
from tests.support.shell import run

_PORT = 9443
_WEBHOOKS = ("pod", "statefulset", "workload", "clusterqueue", "resourceflavor")
_START = """
set -eu
mount -t tmpfs layer "$1/layer"
mkdir "$1/layer/upper" "$1/layer/work"
mount -t overlay etc -o "lowerdir=/etc,upperdir=$1/layer/upper,workdir=$1/layer/work" /etc
mkdir -p /etc/kueue/metrics
cp -r "$1/certificates" /etc/kueue/metrics/certs
exec "$2" --config "$1/config.yaml" --feature-gates=VisibilityOnDemand=false
"""


@contextmanager
def kueue(
    cluster: KubernetesCluster, program: Path, namespace: str, folder: Path
) -> Iterator[None]:
    """Kueue with queue ``nightly`` in the namespace, whose ClusterQueue has no quota yet."""
    source = _source()
    definitions = str(source / "config/components/crd/bases")
    cluster.kubectl("apply", "--server-side", "-f", definitions)
    cluster.kubectl(
        "wait", "-f", definitions, "--for=condition=Established", f"--timeout={WAIT_SECONDS:.0f}s"
    )
    names = ("IP:" + HOST,)
    authority = Authority(folder / "authority")
    authority.issue("kueue", Subject("kueue", names=names))
    _write_files(authority, folder, namespace)
    process = _start(cluster, program, folder)
    try:
        cluster.wait_for(_listens, 60, "Kueue's webhooks")
        _apply(cluster, *_webhooks(source, authority, namespace))
        _apply(cluster, *_queues(namespace))
        yield
    except AssertionError as error:
        error.add_note((folder / "log").read_text()[-4000:])
        raise
    finally:
        for kind in ("mutating", "validating"):
            name = f"{kind}webhookconfiguration/{kind}-webhook-configuration"
            cluster.kubectl("delete", name, "--ignore-not-found")
        process.terminate()
        process.wait(SOON_SECONDS)


def set_quota(cluster: KubernetesCluster, cpu: str, memory: str) -> None:
    """What the queue's jobs may have in all."""
    _apply(cluster, _cluster_queue(cpu, memory))


def _source() -> Path:
    """The module's folder, with the definitions and the webhooks' manifest."""
    command = (find_go(), "mod", "download", "-json", "sigs.k8s.io/kueue")
    return Path(json.loads(run(*command, cwd=MODULES["kueue"].folder))["Dir"])


def _write_files(authority: Authority, folder: Path, namespace: str) -> None:
    certificates = folder / "certificates"
    certificates.mkdir()
    (folder / "layer").mkdir()
    for ending in ("crt", "key"):
        shutil.copy(authority.folder / f"kueue.{ending}", certificates / f"tls.{ending}")
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": _PORT, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["pod", "statefulset"]},
        "managedJobsNamespaceSelector": {"matchLabels": _own(namespace)},
    }
    (folder / "config.yaml").write_text(json.dumps(config))


def _start(cluster: KubernetesCluster, program: Path, folder: Path) -> subprocess.Popen[bytes]:
    command = ["unshare", "--mount", "sh", "-c", _START, "sh", str(folder), str(program)]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _listens() -> bool:
    try:
        socket.create_connection((HOST, _PORT), timeout=1).close()
    except OSError:
        return False
    return True


def _webhooks(source: Path, authority: Authority, namespace: str) -> list[dict[str, Any]]:
    """Its own webhook configurations, as far as its two integrations go, for this namespace."""
    text = (source / "config/components/webhook/manifests.yaml").read_text()
    bundle = base64.b64encode((authority.folder / "ca.crt").read_bytes()).decode()
    found = []
    for item in yaml.safe_load_all(text):
        kept = [hook for hook in item["webhooks"] if hook["name"][1:].split(".")[0] in _WEBHOOKS]
        for hook in kept:
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://{HOST}:{_PORT}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": bundle}
            hook["namespaceSelector"] = {"matchLabels": _own(namespace)}
        found.append(item | {"webhooks": kept})
    return found


def _queues(namespace: str) -> list[dict[str, Any]]:
    local = _object("LocalQueue", "nightly", {"clusterQueue": "all"})
    local["metadata"]["namespace"] = namespace
    return [_object("ResourceFlavor", "any", {}), _cluster_queue("0", "0"), local]


def _cluster_queue(cpu: str, memory: str) -> dict[str, Any]:
    quota = {"cpu": cpu, "memory": memory}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": "any", "resources": resources}]}
    return _object("ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": [group]})


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind}
    return {**head, "metadata": {"name": name}, "spec": spec}


def _apply(cluster: KubernetesCluster, *objects: dict[str, Any]) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))


def _own(namespace: str) -> dict[str, str]:
    return {"kubernetes.io/metadata.name": namespace}
