"""Jobs without end while everything is killed at random; each must end as it should.

    python -m tests.support.cluster.soak --minutes 30      jobs under faults
    python -m tests.support.cluster.soak --burst 100       so many jobs at once, without faults

It prints every fault and every end, and exits with 1 if a job did not end as it should.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from urllib3.exceptions import HTTPError

from tests.support.cluster.faults import Faults
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.images import build_images
from tests.support.cluster.installation import NAMESPACE, RELEASE, install
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition, workers
from tests.support.cluster.programs import build_all
from tests.support.cluster.requirements import missing

_PATIENCE = {"backoffLimit": 1000, "activeDeadlineSeconds": 1800}
_LOOK_SECONDS = 0.5
_AFTERWARDS_SECONDS = 600.0
"""How long jobs may take to end once nothing is killed any more."""
_BURST_SECONDS = 3600.0


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes:
        make: its manifest, of its name and output.
        disturb: what the user does while it runs.
        reason: of its failure; "" where it has to be published.
    """

    make: Callable[[str, str], Manifest]
    disturb: Callable[[Jobs, str], None] | None = None
    reason: str = ""


@dataclass
class Soak:
    """The jobs under way, and what became of all.

    Attributes:
        at_once: how many jobs there are at any time.
        wrong: what is not as it should be.
    """

    jobs: Jobs
    inputs: Inputs
    kinds: dict[str, Kind]
    at_once: int
    wrong: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    _alive: dict[str, Kind] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def refill(self) -> None:
        """Apply jobs until there are enough."""
        while len(self._alive) < self.at_once:
            number = next(self._numbers)
            kind = list(self.kinds)[number % len(self.kinds)]
            name = f"{kind}-{number}"
            self._alive[name] = self.kinds[kind]
            self._try(self.jobs.apply, self._alive[name].make(name, self._output(name)))

    def look(self) -> None:
        """Disturb the jobs that run, judge those that have ended."""
        try:
            statuses = self.jobs.statuses()
        except (AssertionError, HTTPError):
            return  # the API server has just been killed
        for name, kind in list(self._alive.items()):
            status = statuses.get(name, {})
            if status.get("phase") in ("Succeeded", "Failed"):
                self._judge(name, kind, status)
            elif status.get("phase") == "Running" and kind.disturb is not None:
                self._try(kind.disturb, self.jobs, name)
                self._alive[name] = Kind(kind.make, None, kind.reason)

    @property
    def unfinished(self) -> list[str]:
        """Names of the jobs that have not ended."""
        return list(self._alive)

    def _judge(self, name: str, kind: Kind, status: Manifest) -> None:
        del self._alive[name]
        failed = find_condition(status, "Failed")
        problem = ""
        if kind.reason:
            if failed.get("reason") != kind.reason:
                problem = f"ended {status['phase']}, not as {kind.reason}: {failed}"
        elif status["phase"] != "Succeeded":
            problem = f"ended {status['phase']}: {failed}"
        else:
            problem = self._check_output(name)
        if problem:
            self.wrong.append(f"{name}: {problem}")
        self.ended[name.rpartition("-")[0]] += 1
        attempt, told = status.get("attempt"), "WRONG: " + problem if problem else "as it should"
        say(f"{name} ended in attempt {attempt}: {told}")

    def _check_output(self, name: str) -> str:
        """What is wrong with a published output; "" for nothing."""
        output = self._output(name)
        try:
            self.inputs.check(output)
        except AssertionError as error:
            return f"other rows than the reference: {error}"
        versions = self.inputs.versions(output)
        return "" if len(versions) == 1 else f"{len(versions)} versions: {versions}"

    def _output(self, name: str) -> str:
        return f"{self.jobs.root}/{name}"

    def _try(self, act: Callable[..., object], *arguments: object) -> None:
        """Until the API server takes it, which may just have been killed."""
        for _ in range(60):
            try:
                act(*arguments)
            except AssertionError as error:
                last = error
                time.sleep(1.0)
            else:
                return
        raise last


def kinds_of(inputs: Inputs) -> dict[str, Kind]:
    """What is applied in turn."""

    def plain(name: str, output: str) -> Manifest:
        return inputs.job(name, output, **_PATIENCE)

    def pair(name: str, output: str) -> Manifest:
        return inputs.job(name, output, workers=workers(2, 1), **_PATIENCE)

    def bad(name: str, output: str) -> Manifest:
        job = plain(name, output)
        job["spec"]["input"]["nodes"][0]["features"]["vectorColumn"] = "nowhere"
        return job

    def halt(jobs: Jobs, name: str) -> None:
        jobs.patch(name, {"suspend": True})
        time.sleep(2.0)
        jobs.patch(name, {"suspend": False})

    return {
        "plain": Kind(plain),
        "pair": Kind(pair),
        "bad": Kind(bad, reason="Input"),
        "halted": Kind(pair, disturb=halt),
    }


def soak(cluster: KubernetesCluster, minutes: float, at_once: int, seed: int) -> list[str]:
    """What went wrong under random faults."""
    jobs = Jobs(cluster, cluster.namespace("soak"))
    inputs = Inputs.make(cluster, "soaked", "--scale=9", "--width=16", "--hidden=16")
    running = Soak(jobs, inputs, kinds_of(inputs), at_once)
    faults = Faults(cluster, jobs, random.Random(seed), say)
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        running.refill()
        running.look()
        faults.maybe()
        time.sleep(_LOOK_SECONDS)
    say(f"no more faults; {len(running.unfinished)} jobs to end")
    end += _AFTERWARDS_SECONDS
    while running.unfinished and time.monotonic() < end:
        running.look()
        time.sleep(_LOOK_SECONDS)
    running.wrong += [f"{name} has not ended: {jobs.status(name)}" for name in running.unfinished]
    say(f"ended: {dict(running.ended)}; faults: {dict(faults.done)}")
    return running.wrong


def burst(cluster: KubernetesCluster, count: int) -> list[str]:
    """What went wrong with so many jobs at once."""
    jobs = Jobs(cluster, cluster.namespace("burst"))
    inputs = Inputs.make(cluster, "burst", "--scale=6", "--width=8", "--hidden=8")
    names = [f"job-{number:03}" for number in range(count)]
    before, began = operator_restarts(cluster), time.monotonic()
    jobs.apply(*(inputs.job(name, f"{jobs.root}/{name}") for name in names))
    shown = ""
    while time.monotonic() - began < _BURST_SECONDS:
        phases = Counter(status.get("phase", "") for status in jobs.statuses().values())
        if str(phases) != shown:
            shown = str(phases)
            say(f"{time.monotonic() - began:.0f} s: {dict(phases)}")
        if sum(phases[end] for end in ("Succeeded", "Failed")) == count:
            break
        time.sleep(2.0)
    statuses = jobs.statuses()
    wrong = [f"{name}: {s}" for name, s in statuses.items() if s.get("phase") != "Succeeded"]
    attempts = Counter(status.get("attempt") for status in statuses.values())
    say(f"{count} jobs in {time.monotonic() - began:.0f} s; attempts: {dict(attempts)}")
    for name in names[:: max(1, count // 10)]:
        inputs.check(f"{jobs.root}/{name}")
    restarts = operator_restarts(cluster)
    return wrong + ([] if restarts == before else [f"operator restarts: {before} -> {restarts}"])


def operator_restarts(cluster: KubernetesCluster) -> dict[str, int]:
    """Restarts of the operator's containers by pod."""
    label = "app.kubernetes.io/component=operator"
    pods = cluster.get("-n", NAMESPACE, "pods", "-l", label)["items"]
    return {
        pod["metadata"]["name"]: sum(c["restartCount"] for c in pod["status"]["containerStatuses"])
        for pod in pods
    }


def say(text: str) -> None:
    """A line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


@contextmanager
def running_cluster() -> Iterator[KubernetesCluster]:
    """A cluster with the operator on it."""
    cluster = KubernetesCluster(build_all(), build_images())
    try:
        cluster.start()
        install(cluster, RELEASE)
        yield cluster
    finally:
        cluster.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of faults")
    parser.add_argument("--at-once", type=int, default=4, help="jobs under way at any time")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--burst", type=int, help="so many jobs at once instead, without faults")
    asked = parser.parse_args()
    if (reason := missing()) is not None:
        print(f"[cluster] {reason}", file=sys.stderr)
        return 1
    with running_cluster() as cluster:
        os.environ.update(cluster.s3.environment)
        if asked.burst:
            wrong = burst(cluster, asked.burst)
        else:
            wrong = soak(cluster, asked.minutes, asked.at_once, asked.seed)
    for problem in wrong:
        say(f"WRONG: {problem}")
    say("all as it should be" if not wrong else f"{len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
