"""The operator itself: it may die anywhere, has exactly its rights, and says when it is stuck."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import NAMESPACE, leading_pod, operator_away
from tests.support.cluster.jobs import Inputs, Jobs, workers
from tests.support.cluster.layout import NODE
from tests.support.paths import ROOT
from tests.support.tcp_proxy import tcp_proxy

pytestmark = pytest.mark.cluster

API_PORT = 6443


@pytest.fixture
def no_operator(cluster: KubernetesCluster, operator: str) -> Iterator[None]:
    """The deployed operator is away while a test runs its own."""
    with operator_away(cluster, operator):
        yield


def test_it_dies_after_each_of_its_writes_and_nothing_is_lost_or_done_twice(
    small: Inputs, jobs: Jobs, no_operator: None
) -> None:
    """Every life of the operator ends with its first write, whatever that is."""
    output = f"{jobs.root}/out"
    jobs.apply(small.job("steady", output, workers=workers(2, 1)))
    written: list[str] = []
    while jobs.status("steady").get("phase") != "Succeeded":
        assert len(written) < 60, written
        environment = os.environ | {
            "KUBECONFIG": str(jobs.cluster.kubeconfig),
            "EMBERTIDE_NAMESPACES": jobs.namespace,
            "EMBERTIDE_IMAGE": jobs.cluster.worker_image,
        }
        life = subprocess.run(
            [sys.executable, "-m", "tests.support.cluster.dying_operator"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert life.returncode == 9, life.stderr
        written.append(life.stdout.strip())
    assert {"EmbeddingJob/status", "ConfigMap", "Service", "StatefulSet"} <= set(written)
    assert written.count("StatefulSet") == 1, written
    status = jobs.status("steady")
    assert (status["attempt"], status["failures"]) == (1, 0)
    assert small.versions(output) == status["versions"]
    small.check(output)


def test_killed_again_and_again_while_a_job_runs(big: Inputs, jobs: Jobs, operator: str) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("steady", output, workers=workers(2, 1)))
    _kill(jobs.cluster, operator, 0)
    with jobs.held("steady", 1, "infer"):
        for restarts in (1, 2):
            _kill(jobs.cluster, operator, restarts)
        _await_restarts(jobs.cluster, 3)
    status = jobs.complete("steady", 240)
    assert (status["attempt"], status["failures"]) == (1, 0)
    assert len(big.versions(output)) == 1


def test_a_job_completes_though_the_network_to_the_api_server_is_bad(
    tiny: Inputs, jobs: Jobs, no_operator: None, tmp_path: Path
) -> None:
    """Every second all connections are cut or reset, or an answer ends in its middle."""
    output = f"{jobs.root}/out"
    with tcp_proxy(NODE, API_PORT) as proxy:
        kubeconfig = yaml.safe_load(jobs.cluster.kubeconfig.read_text())
        (entry,) = kubeconfig["clusters"]
        entry["cluster"] |= {"server": f"https://127.0.0.1:{proxy.port}"}
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        with _operator_process(jobs, tmp_path / "kubeconfig") as process:
            proxy.delay_seconds = 0.01
            jobs.apply(tiny.job("steady", output, workers=workers(2, 1)))
            until, number = time.monotonic() + 120, 0
            while jobs.status("steady").get("phase") != "Succeeded":
                assert process.poll() is None, "it ended"
                assert time.monotonic() < until, jobs.status("steady")
                number += 1
                if number % 3 == 0:
                    proxy.cut_after = 2000
                else:
                    (proxy.cut if number % 3 == 1 else proxy.reset)()
                time.sleep(1.0)
    status = jobs.status("steady")
    assert (status["attempt"], status["failures"]) == (1, 0)
    assert tiny.versions(output) == status["versions"]


@contextmanager
def _operator_process(jobs: Jobs, kubeconfig: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The operator as a process of this machine, for the namespace of these jobs."""
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "EMBERTIDE_NAMESPACES": jobs.namespace,
        "EMBERTIDE_IMAGE": jobs.cluster.worker_image,
        "EMBERTIDE_RESYNC_SECONDS": "5",
        "EMBERTIDE_PORT": "18081",
    }
    command = [sys.executable, "-m", "embertide_operator"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.tier(3)
def test_health_turns_red_when_jobs_are_no_longer_looked_at(
    cluster: KubernetesCluster, operator: str
) -> None:
    """The process lives and answers, but the API server no longer lets it in."""
    name = f"{NAMESPACE}:{operator}"
    binding = yaml.safe_load(cluster.kubectl("get", "clusterrolebinding", name, "-o", "yaml"))
    for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        binding["metadata"].pop(key, None)
    address = leading_pod(cluster)["status"]["podIP"]
    url = f"http://{address}:8080/healthz"
    cluster.wait_for(lambda: _code(url) == 200, 180, "/healthz is green")
    cluster.kubectl("delete", "clusterrolebinding", name)
    try:
        cluster.wait_for(lambda: _code(url) == 503, 180, "/healthz is red")
    finally:
        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(binding))
    cluster.wait_for(lambda: _code(url) == 200, 240, "/healthz is green again")


def _kill(cluster: KubernetesCluster, operator: str, restarts: int) -> None:
    """Once it was started again so many times."""
    _await_restarts(cluster, restarts)
    cluster.kill_in_pod("embertide", operator, "python")


def _await_restarts(cluster: KubernetesCluster, count: int) -> None:
    cluster.wait_for(lambda: _restarts(cluster) == count, 180, "the operator is back")


def _restarts(cluster: KubernetesCluster) -> int:
    """How often the container was started again, -1 while it does not run."""
    (container,) = leading_pod(cluster)["status"].get("containerStatuses") or [{}]
    return int(container["restartCount"]) if "running" in container.get("state", {}) else -1


def _code(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
