"""How quick the operator is, and what it takes, with many jobs present; on the test cluster.

    sudo .venv/bin/python benchmarks/operator_latency.py

Apply to StatefulSet: from the return of `kubectl apply` to the StatefulSet being there. Done to
Complete: from rank 0's answer "succeeded" to `Complete=True`. Other jobs are present and
unfinished, but cannot get a node. Memory is the operator's own figure of its resident bytes.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cluster.build import build_all
from cluster.fixture import Cluster
from cluster.images import build_images
from cluster.installation import RELEASE, install
from cluster.jobs import Inputs, Jobs, workers
from cluster.test_many import operator_bytes

_TURNS = 5
_NO_ROOM = {"requests": {"cpu": "999"}, "limits": {"memory": "1Gi"}}


def main() -> None:
    """Print every figure as it is found."""
    cluster = Cluster(build_all(), build_images())
    try:
        cluster.start()
        measure(cluster)
    finally:
        cluster.stop()


def measure(cluster: Cluster) -> None:
    """20 jobs, then 200."""
    os.environ |= cluster.s3.environment
    install(cluster, RELEASE)
    jobs = Jobs(cluster, cluster.namespace("bench"))
    inputs = Inputs.make(cluster, "tiny", "--scale=6", "--width=8", "--hidden=8")
    print(f"operator alone: {operator_bytes(cluster) >> 20} MiB")
    for count, earlier in ((20, 0), (200, 20)):
        names = [f"other-{number}" for number in range(earlier, count)]
        waiting = workers(resources=_NO_ROOM)
        jobs.apply(*(inputs.job(n, f"{jobs.root}/{n}", workers=waiting) for n in names))
        wait(lambda n=names: all(exists(jobs, "sts", name) for name in n))
        turns = [turn(jobs, inputs, f"mine-{count}-{number}") for number in range(_TURNS)]
        for text, seconds in zip(
            ("apply to StatefulSet", "done to Complete"), zip(*turns, strict=True), strict=True
        ):
            middle, worst = statistics.median(seconds), max(seconds)
            print(f"{count} jobs: {text}: median {middle:.2f} s, slowest {worst:.2f} s")
        print(f"{count} jobs: operator {operator_bytes(cluster) >> 20} MiB")


def turn(jobs: Jobs, inputs: Inputs, name: str) -> tuple[float, float]:
    """(apply to StatefulSet, done to Complete) of one job, in seconds."""
    job = inputs.job(name, f"{jobs.root}/{name}")
    jobs.apply(job)
    applied = time.monotonic()
    wait(lambda: exists(jobs, "sts", name))
    made = time.monotonic()
    wait(lambda: '"succeeded"' in jobs.ask(f"{name}-0") or jobs.status(name).get("output"))
    done = time.monotonic()
    wait(lambda: jobs.status(name).get("phase") == "Succeeded")
    return made - applied, time.monotonic() - done


def exists(jobs: Jobs, kind: str, name: str) -> bool:
    """Whether there is such an object."""
    found = jobs.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
    return bool(found and json.loads(found))


def wait(condition: Callable[[], object]) -> None:
    """Until it is true."""
    while not condition():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
