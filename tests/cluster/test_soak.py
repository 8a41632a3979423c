"""Jobs without end while everything is killed at random; each must end as it should."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from urllib3.exceptions import HTTPError

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import NAMESPACE
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition, workers

pytestmark = [pytest.mark.cluster, pytest.mark.tier(3)]

SECONDS = 600.0
AFTERWARDS_SECONDS = 600.0
"""How long jobs may take to end once nothing is killed any more."""
AT_ONCE = 4
KINDS = ("plain", "pair", "bad", "halted")
COMPONENTS = ("apiserver", "controller-manager", "s3")
"""They are away for some seconds; all others are killed, and come back by themselves."""
FAULTS = (*COMPONENTS, "operator", "operator's pod", *["worker", "pod"] * 2, "statefulset")
LABEL = "app.kubernetes.io/component=operator"


def make(inputs: Inputs, jobs: Jobs, name: str) -> Manifest:
    """A job of the kind that its name begins with."""
    kind, size = name.partition("-")[0], {"plain": workers(), "bad": workers()}
    patience = {"backoffLimit": 1000, "activeDeadlineSeconds": 1800}
    output = f"{jobs.root}/{name}"
    job = inputs.job(name, output, workers=size.get(kind, workers(2, 1)), **patience)
    if kind == "bad":
        job["spec"]["input"]["nodes"][0]["features"]["vectorColumn"] = "nowhere"
    return job


@contextmanager
def struck(jobs: Jobs, operator: str, fault: str, chance: random.Random) -> Iterator[None]:
    """Something is killed, or away within the block; what it was to hit may have ended."""
    cluster = jobs.cluster
    with suppress(AssertionError, HTTPError, IndexError):
        running = [p for p in jobs.pods() if p["status"].get("phase") == "Running"]
        pods = [pod["metadata"]["name"] for pod in running]
        if fault in COMPONENTS:
            cluster.node.order("stop", fault)
        elif fault == "operator":
            cluster.kill_in_pod(NAMESPACE, operator, "embertide_operator")
        elif fault == "operator's pod":
            cluster.kubectl("-n", NAMESPACE, "delete", "pod", "-l", LABEL, "--wait=false")
        elif fault == "worker":
            cluster.kill_in_pod(jobs.namespace, chance.choice(pods), "python")
        elif fault == "pod":
            jobs.kubectl("delete", "pod", chance.choice(pods), "--wait=false")
        else:
            jobs.kubectl("delete", "sts", "-l", "embertide.dev/job", "--wait=false")
    yield
    if fault in COMPONENTS:
        cluster.node.order("start", fault)


def problem_of(inputs: Inputs, jobs: Jobs, name: str, status: Manifest) -> str:
    """Why a job did not end as it should; "" where it did."""
    failed, output = find_condition(status, "Failed"), f"{jobs.root}/{name}"
    if name.startswith("bad"):
        return "" if failed.get("reason") == "Input" else f"{name}: not as Input: {status}"
    if status["phase"] != "Succeeded":
        return f"{name}: {failed}"
    inputs.check(output)
    return "" if len(inputs.versions(output)) == 1 else f"{name}: {inputs.versions(output)}"


@pytest.mark.timeout(3600)
def test_jobs_end_as_they_should_while_everything_is_killed(
    small: Inputs, jobs: Jobs, operator: str
) -> None:
    cluster: KubernetesCluster = jobs.cluster
    chance, numbers, until = random.Random(0), itertools.count(), time.monotonic() + SECONDS
    alive, halted, wrong = set[str](), set[str](), list[str]()

    def look() -> None:
        with suppress(AssertionError, HTTPError):  # the API server has just been killed
            for name, status in jobs.statuses().items():
                if name in alive and status.get("phase") in ("Succeeded", "Failed"):
                    alive.remove(name)
                    wrong.append(problem_of(small, jobs, name, status))
                elif name.startswith("halted") and status.get("phase") == "Running":
                    if name not in halted:
                        jobs.patch(name, {"suspend": True})
                        halted.add(name)
                elif status.get("phase") == "Suspended":
                    jobs.patch(name, {"suspend": False})

    while time.monotonic() < until:
        while len(alive) < AT_ONCE:
            number = next(numbers)
            name = f"{KINDS[number % len(KINDS)]}-{number}"
            jobs.apply(make(small, jobs, name))
            alive.add(name)
        with struck(jobs, operator, chance.choice(FAULTS), chance):
            time.sleep(chance.uniform(1.0, 6.0))
        cluster.wait_for(lambda: cluster.try_kubectl("get", "ej", "-A").returncode == 0, 60)
        look()
        time.sleep(chance.uniform(4.0, 14.0))
        look()
    cluster.wait_for(lambda: (look(), not alive)[1], AFTERWARDS_SECONDS, "all end", pause=1.0)
    assert [problem for problem in wrong if problem] == []
    assert len(wrong) > len(KINDS)
