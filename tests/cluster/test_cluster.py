"""The test cluster itself: what tests on it rely on."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.cluster.fixture import KubernetesCluster

pytestmark = pytest.mark.cluster

RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def namespace(cluster: KubernetesCluster) -> Iterator[str]:
    name = cluster.namespace()
    yield name
    cluster.discard(name)


def pod(cluster: KubernetesCluster, name: str, code: str, **fields: Any) -> dict[str, Any]:
    """A pod of the worker image that runs some Python; ``fields`` of its container."""
    container = {
        "name": "main",
        "image": cluster.worker_image,
        "command": ["python", "-c", code],
        "securityContext": RESTRICTED,
    }
    spec = {
        "containers": [container | fields],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
    }
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def run(cluster: KubernetesCluster, namespace: str, *manifests: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(items))


def finished(cluster: KubernetesCluster, namespace: str, name: str) -> str:
    """A pod's output, once it has ended well."""

    def phase() -> str:
        found: str = cluster.get("-n", namespace, "pod", name)["status"]["phase"]
        return found if found in ("Succeeded", "Failed") else ""

    ended = cluster.wait_for(phase, what=f"{name} ends")
    output = cluster.kubectl("-n", namespace, "logs", name)
    assert ended == "Succeeded", output
    return output


def test_restricted_pod_runs_torch_and_reaches_services(
    cluster: KubernetesCluster, namespace: str
) -> None:
    code = (
        "import os, socket, torch, embertide\n"
        "print(torch.ones(3).sum().item(), os.getuid())\n"
        "print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))\n"
        "socket.create_connection(('kubernetes.default.svc.cluster.local', 443), 5)\n"
        "socket.create_connection(('198.18.0.1', 9000), 5)\n"
    )
    run(cluster, namespace, pod(cluster, "hello", code))
    assert finished(cluster, namespace, "hello").split() == ["3.0", "65532", "198.19.0.1"]


def test_pod_that_is_not_restricted_is_refused(cluster: KubernetesCluster, namespace: str) -> None:
    manifest = json.dumps(pod(cluster, "root", "", securityContext={"runAsUser": 0}))
    result = cluster.try_kubectl("-n", namespace, "apply", "-f", "-", input=manifest)
    assert result.returncode != 0
    assert "violates PodSecurity" in result.stderr


def test_pods_and_services_are_reached_from_here_and_from_each_other(
    cluster: KubernetesCluster, namespace: str
) -> None:
    serve = (
        "import http.server as h, os\n"
        "os.chdir('/')\n"
        "h.test(h.SimpleHTTPRequestHandler, port=8080)\n"
    )
    probe = {"httpGet": {"path": "/etc/hostname", "port": 8080}, "periodSeconds": 1}
    server = pod(cluster, "server", serve, readinessProbe=probe)
    ports = [{"port": 80, "targetPort": 8080}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "server"}, "ports": ports},
    }
    run(cluster, namespace, server, service)
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/server")
    address = cluster.get("-n", namespace, "pod", "server")["status"]["podIP"]
    virtual = cluster.get("-n", namespace, "service", "web")["spec"]["clusterIP"]
    for url in (f"http://{address}:8080", f"http://{virtual}"):
        with urllib.request.urlopen(f"{url}/etc/hostname", timeout=5) as answer:
            assert answer.read().decode().strip() == "server"

    read = "import urllib.request as u; print(u.urlopen('http://web/etc/hostname').read())"
    run(cluster, namespace, pod(cluster, "client", read))
    assert "server" in finished(cluster, namespace, "client")
    logs = cluster.kubectl("-n", namespace, "exec", "server", "--", "id", "-u")
    assert logs.strip() == "65532"


def test_memory_limit_kills(cluster: KubernetesCluster, namespace: str) -> None:
    limit = {"limits": {"memory": "64Mi", "cpu": "1"}}
    code = "b = bytearray(200 << 20)"
    run(cluster, namespace, pod(cluster, "greedy", code, resources=limit))
    status = cluster.wait_for(lambda: terminated(cluster, namespace, "greedy"), what="it is killed")
    assert (status["reason"], status["exitCode"]) == ("OOMKilled", 137)


def test_killed_process_is_restarted(cluster: KubernetesCluster, namespace: str) -> None:
    manifest = pod(cluster, "steady", "import time; time.sleep(1000)")
    manifest["spec"]["restartPolicy"] = "Always"
    run(cluster, namespace, manifest)
    ready = ("wait", "--for=condition=Ready", "pod/steady", "--timeout=30s")
    for times in (1, 2, 3):
        cluster.kubectl("-n", namespace, *ready)
        cluster.wait_for(lambda: running(cluster, namespace, "steady"), what="it runs")
        assert cluster.kill_in_pod(namespace, "steady", "time.sleep") == 1
        again = partial(restarted, cluster, namespace, "steady", times)
        cluster.wait_for(again, 15, "it is restarted")


def test_second_node_comes_and_dies(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.start_second_node()
    serve = (
        "import http.server as h, os\n"
        "os.chdir('/')\n"
        "h.test(h.SimpleHTTPRequestHandler, port=8080)\n"
    )
    manifests = []
    for number in (1, 2):
        manifest = pod(cluster, f"on-{number}", serve)
        manifest["spec"]["nodeName"] = f"node-{number}"
        manifests.append(manifest)
    ports = [{"port": 80, "targetPort": 8080}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "far"},
        "spec": {"selector": {"app": "on-2"}, "ports": ports},
    }
    run(cluster, namespace, *manifests, service)
    ready = ("wait", "--for=condition=Ready", "pod", "--all", "--timeout=30s")
    cluster.kubectl("-n", namespace, *ready)
    address = cluster.get("-n", namespace, "pod", "on-2")["status"]["podIP"]
    virtual = cluster.get("-n", namespace, "service", "far")["spec"]["clusterIP"]
    read = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read())"
    for url in (f"http://{address}:8080/etc/hostname", f"http://{virtual}/etc/hostname"):
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert answer.read().decode().strip() == "on-2"
        run_there = ("exec", "on-1", "--", "python", "-c", read, url)
        assert "on-2" in cluster.kubectl("-n", namespace, *run_there)

    cluster.kill_second_node()
    try:
        cluster.wait_for(lambda: silent(f"http://{address}:8080"), 30, "it no longer answers")
    finally:
        cluster.kubectl("delete", "node", "node-2")


def test_s3_outage(cluster: KubernetesCluster) -> None:
    def answers() -> bool:
        try:
            urllib.request.urlopen(cluster.s3.endpoint, timeout=2)
        except urllib.error.HTTPError:
            return True  # it refuses strangers
        except OSError:
            return False
        return True

    assert answers()
    cluster.stop_s3()
    assert not answers()
    cluster.start_s3()
    cluster.wait_for(answers, 10, "S3 answers again")


def test_extended_resource_is_scheduled(cluster: KubernetesCluster, namespace: str) -> None:
    wants = {"limits": {"nvidia.com/gpu": "1"}}
    run(cluster, namespace, pod(cluster, "gpu", "", resources=wants))
    unschedulable = ("--for=condition=PodScheduled=False", "pod/gpu", "--timeout=20s")
    cluster.kubectl("-n", namespace, "wait", *unschedulable)
    cluster.offer("nvidia.com/gpu", 1)
    try:
        finished(cluster, namespace, "gpu")
    finally:
        cluster.offer("nvidia.com/gpu", 0)


def test_requests_are_audited(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.kubectl("get", "namespace", namespace)
    asked = [
        event["objectRef"]["name"]
        for event in cluster.audit_events("admin")
        if event["verb"] == "get" and event.get("objectRef", {}).get("resource") == "namespaces"
    ]
    assert namespace in asked


def silent(url: str) -> bool:
    """Nobody is there, not even to refuse."""
    try:
        urllib.request.urlopen(url, timeout=2)
    except OSError as error:
        return any(words in str(error) for words in ("timed out", "unreachable", "No route"))
    return False


def status_of(cluster: KubernetesCluster, namespace: str, name: str) -> dict[str, Any]:
    pod_status = cluster.get("-n", namespace, "pod", name)["status"]
    found: dict[str, Any] = next(iter(pod_status.get("containerStatuses", ())), {})
    return found


def terminated(cluster: KubernetesCluster, namespace: str, name: str) -> dict[str, Any]:
    state: dict[str, Any] = status_of(cluster, namespace, name).get("state", {})
    found: dict[str, Any] = state.get("terminated", {})
    return found


def running(cluster: KubernetesCluster, namespace: str, name: str) -> bool:
    return "running" in status_of(cluster, namespace, name).get("state", {})


def restarted(cluster: KubernetesCluster, namespace: str, name: str, times: int) -> bool:
    return bool(status_of(cluster, namespace, name).get("restartCount", 0) == times)
