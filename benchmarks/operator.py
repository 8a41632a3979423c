"""What the operator costs and how quick it is, with many jobs of which some run.

    .venv/bin/python -m benchmarks.operator --jobs 1000 --running 50 --seconds 30

Starts a control plane without nodes (or takes ``--kubeconfig``), the operator as a process of this
machine, and as many finished jobs as are wanted. Running jobs are real to the operator and the API
server; their pods are held by no node (``support/fake_pods.py``), so that any number has room.

Measured: from creating a job to its StatefulSet, as a watch tells of it; the operator's resident
memory and CPU; its requests to the API server, which it counts itself; the mean duration of a pass
with 0, 1, 10, ... jobs running. ``--python`` measures the operator of another checkout.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml
from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config

from benchmarks.support.control_plane import control_plane
from benchmarks.support.fake_pods import SCHEDULER, FakePods, send
from benchmarks.support.operator_process import OperatorProcess, wait
from benchmarks.support.rounds import RESULTS, ROOT, Run, save
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError
from tests.support.operator_world import raw_job

NAMESPACE = "benchmark"
JOBS = f"/apis/embertide.dev/v1alpha1/namespaces/{NAMESPACE}/embeddingjobs"
_AT_ONCE = 16
_SETTLE_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_DONE = "2026-01-01T00:00:00Z"


def manifest(name: str) -> Object:
    """A job on one worker, with an output of its own."""
    job = raw_job(output={"uri": f"s3://benchmark/{name}"})
    job["metadata"] = {"name": name, "namespace": NAMESPACE}
    job["spec"]["workers"] |= {
        "grid": {"graph": 1, "feature": 1},
        "podTemplate": {"spec": {"schedulerName": SCHEDULER}},
    }
    return job


def finished_status() -> Object:
    """Of a job that has published, as the operator leaves it: it has nothing to write."""
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": "version v",
         "observedGeneration": 1, "lastTransitionTime": _DONE}
        for kind, status, reason in (
            ("Accepted", "True", "Valid"),
            ("Progressing", "False", "Complete"),
            ("Published", "True", "Published"),
            ("Complete", "True", "Published"),
            ("Ready", "True", "Complete"),
        )
    ]  # fmt: skip
    workers = {"desired": 0, "ready": 0, "failed": 0, "summary": "0/0"}
    return {
        "phase": "Succeeded",
        "attempt": 1,
        "failures": 0,
        "observedGeneration": 1,
        "completionTime": _DONE,
        "startTime": _DONE,
        "workers": workers,
        "conditions": conditions,
    }


class Bench:
    """A cluster with the benchmark's jobs on it.

    Attributes:
        made: monotonic time at which the StatefulSet of a job was there, by the job's name.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.client: ApiClient = new_client_from_config(str(kubeconfig))
        self.made: dict[str, float] = {}
        self.uids: dict[str, str] = {}
        self._pool, self._stopped = ThreadPoolExecutor(_AT_ONCE), False
        self._pods = FakePods(self.client, self.uids)

    def prepare(self, count: int) -> None:
        """The namespace, and so many finished jobs."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        send(self.client, "POST", "/api/v1/namespaces", space)
        list(self._pool.map(self._finished, range(count)))
        self._pods.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Watch nothing and answer for no pod any more."""
        self._stopped = True
        self._pods.stop()

    def create(self, name: str) -> None:
        """A job that is to run."""
        self.uids[name] = send(self.client, "POST", JOBS, manifest(name))["metadata"]["uid"]

    def delete(self, name: str) -> None:
        """A job, with all that belongs to it."""
        send(self.client, "DELETE", f"{JOBS}/{name}", {"propagationPolicy": "Background"})

    def run_jobs(self, wanted: list[str]) -> None:
        """Create jobs and wait until all of them run."""
        list(self._pool.map(self.create, wanted))
        missing = set(wanted)

        def all_run() -> bool:
            for name in sorted(missing):
                found = send(self.client, "GET", f"{JOBS}/{name}", None)
                if (found.get("status") or {}).get("phase") != "Running":
                    return False
                missing.discard(name)
            return True

        wait(all_run, "the jobs run")

    def latency(self, name: str) -> float:
        """Seconds from creating a job to its StatefulSet; the job is deleted afterwards."""
        began = time.monotonic()
        self.create(name)
        wait(lambda: name in self.made, f"the StatefulSet of {name}")
        self.delete(name)
        return self.made[name] - began

    def _finished(self, number: int) -> None:
        name = f"done-{number:04}"
        send(self.client, "POST", JOBS, manifest(name))
        patch = {"status": finished_status()}
        send(self.client, "PATCH", f"{JOBS}/{name}/status", patch, "merge-patch")

    def _watch(self) -> None:
        api = KubernetesApi(self.client)
        while not self._stopped:
            try:
                _, version = api.read_all("StatefulSet", NAMESPACE)
                for kind, item in api.watch("StatefulSet", NAMESPACE, version, 600):
                    if kind == "ADDED":
                        self.made.setdefault(item["metadata"]["name"], time.monotonic())
            except ApiError as error:
                print(f"watch of StatefulSets: {error}", file=sys.stderr)


def measure(bench: Bench, operator: OperatorProcess, given: argparse.Namespace) -> Run:
    """Idle, then with more and more jobs; latencies with as many as were asked for."""
    wait(operator.healthy, "the operator is healthy")
    time.sleep(_SETTLE_SECONDS)
    steps = sorted({0, 1, 10, given.running, *given.steps})
    found: Run = {"jobs": given.jobs, "latency_at": given.running, "running": {}}
    running = 0
    for step in steps:
        if step > running:
            began = time.monotonic()
            bench.run_jobs([f"run-{number:04}" for number in range(running, step)])
            print(f"{step} run after {time.monotonic() - began:.1f} s more", file=sys.stderr)
            time.sleep(_SETTLE_SECONDS)
        running = step
        found["running"][str(step)] = operator.measure(given.seconds)
        print(step, found["running"][str(step)], file=sys.stderr)
        if step == given.running:
            seconds = [_latency(bench, n) for n in range(given.latencies)]
            found["apply_to_statefulset"] = {
                "median_seconds": round(statistics.median(seconds), 4),
                "p99_seconds": round(sorted(seconds)[int(0.99 * (len(seconds) - 1) + 0.5)], 4),
                "count": len(seconds),
            }
            print(found["apply_to_statefulset"], file=sys.stderr)
            time.sleep(_SETTLE_SECONDS)
    return found


def _latency(bench: Bench, number: int) -> float:
    """One job's; jobs come one after the other, not faster than the operator's requests may."""
    time.sleep(_PAUSE_SECONDS)
    return bench.latency(f"latency-{number:03}")


@contextmanager
def cluster(kubeconfig: Path | None) -> Iterator[Path]:
    """A kubeconfig with the definition installed: the one given, or of a cluster of our own."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    with control_plane() as found:
        client: ApiClient = new_client_from_config(str(found))
        text = subprocess.run(
            [sys.executable, "-m", "embertide", "crd"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        definition = yaml.safe_load(text)
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        send(client, "POST", path, definition)
        at = f"{path}/{definition['metadata']['name']}"
        wait(lambda: _established(send(client, "GET", at, None)), "the definition is served")
        yield found


def _established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def arguments() -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000, help="jobs in all")
    parser.add_argument("--running", type=int, default=50, help="of which run for the latencies")
    parser.add_argument("--steps", type=int, nargs="*", default=[100], help="more of them")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--latencies", type=int, default=20, help="jobs to time")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster with the definition")
    text = "interpreter with the operator to measure; default now=this one"
    parser.add_argument("--python", action="append", metavar="NAME=PATH", help=text)
    parser.add_argument("--out", type=Path, default=RESULTS / "operator.json", help="a JSON file")
    return parser.parse_args()


def main() -> None:
    """Measure each operator in turn, each on a cluster of its own."""
    given = arguments()
    # As Ctrl-C, so that nothing is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: Run = {"operators": {}}
    for choice in given.python or [f"now={sys.executable}"]:
        name, _, python = choice.partition("=")
        with cluster(given.kubeconfig) as kubeconfig:
            bench = Bench(kubeconfig)
            bench.prepare(given.jobs - given.running)
            log = Path(f"/tmp/embertide-operator-{name}.log")
            operator = OperatorProcess(python, kubeconfig, NAMESPACE, log)
            try:
                found["operators"][name] = measure(bench, operator, given)
            finally:
                operator.stop()
                bench.stop()
        save("operator", found, given.out)


if __name__ == "__main__":
    main()
