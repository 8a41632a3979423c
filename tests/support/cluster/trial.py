"""Good jobs and wrong ones at once: every end is true, and its cause is seen.

A release of its own runs the jobs, a few workers at once.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import boto3
import yaml

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import CHART, options, release_values
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition, workers
from tests.support.cluster.wrong_jobs import WRONG, Place, Wrong
from tests.support.patience import BUSY

RELEASE = "trial"
"""Also the operator's class."""
AT_ONCE = 8
"""Workers; a hundred small ones at once fill the memory of a machine."""
_MISTAKE_SECONDS = 10
_LOG_PROBLEMS = re.compile(r"internal error|Traceback|\b(ERROR|CRITICAL)\b")
_LOOK_SECONDS = 0.5
_SECONDS_PER_JOB = 20.0
_GONE_SECONDS = 120.0
_CHILDREN = "sts,svc,cm,pdb,networkpolicy,pod"
_ENDS = ("Succeeded", "Failed")


@dataclass
class Ended:
    """What became of a job: the cause that the user sees, and after how many seconds."""

    kind: str
    cause: str
    seconds: float


@dataclass
class Trial:
    """The jobs of a trial and what became of them.

    Attributes:
        wrong: the kinds of the wrong jobs, by name.
        good: the names of the others.
        ended: what became of each.
        problems: what is not as it should be, a line each.
    """

    place: Place
    wrong: dict[str, Wrong]
    good: list[str]
    ended: list[Ended] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _deleted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, place: Place, good: int, wrong: int) -> Trial:
        """A trial of so many jobs; the wrong ones take turns in how they are wrong."""
        turns = itertools.islice(itertools.cycle(WRONG.items()), wrong)
        names = {f"{name}-{number}": kind for number, (name, kind) in enumerate(turns)}
        return cls(place, names, [f"good-{number}" for number in range(good)])

    def run(self) -> None:
        """Apply all jobs, follow them to their ends, judge them, and delete them."""
        self._apply()
        deadline = time.monotonic() + _SECONDS_PER_JOB * BUSY * (len(self.wrong) + len(self.good))
        while (waiting := self._look()) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        self.problems += [f"{name} has not ended: {status}" for name, status in waiting.items()]
        self._judge()
        self._delete()

    def _apply(self) -> None:
        """The wrong ones between the good ones."""
        ways = (_plain, _pair, _planned)
        good = [ways[number % 3](self.place, name) for number, name in enumerate(self.good)]
        self.place.jobs.apply(*good[::2])
        for name, kind in self.wrong.items():
            self._apply_wrong(name, kind)
        if good[1::2]:
            self.place.jobs.apply(*good[1::2])

    def _apply_wrong(self, name: str, kind: Wrong) -> None:
        job = kind.manifest(name, self.place)
        job["spec"]["operatorClass"] = RELEASE
        where, text = self._jobs(kind), yaml.safe_dump(job)
        told = where.cluster.try_kubectl("-n", where.namespace, "apply", "-f", "-", input=text)
        refused = not kind.reason and not kind.deleted
        if (told.returncode != 0) != refused:
            self.problems.append(f"{name}: kubectl apply: {told.stdout}{told.stderr}")
        elif refused:
            self._expect(name, kind, "(kubectl)", told.stderr, 0.0)

    def _look(self) -> dict[str, Manifest]:
        """The statuses of the jobs that have not ended; those to be deleted go as they run."""
        waiting = {}
        for name, status in self._statuses().items():
            kind = self.wrong.get(name)
            if kind is not None and kind.deleted and status.get("phase") == "Running":
                self._jobs(kind).kubectl("delete", "ej", name, "--wait=false")
                self._deleted.add(name)
            elif kind is not None and kind.rejected and find_condition(status, "Stalled"):
                continue
            elif status.get("phase") not in _ENDS:
                waiting[name] = status
        return waiting

    def _judge(self) -> None:
        """Compare what users see of every job with what is true."""
        rows = self._rows()
        for name, job in self._all().items():
            kind = self.wrong.get(name)
            if kind is None:
                self._judge_good(name, job["status"])
            elif kind.deleted:
                self.problems.append(f"{name}: was to be deleted as it ran: {job['status']}")
            else:
                self._judge_wrong(name, kind, job, rows[name])
        self.ended += [Ended("deleted", "(deleted)", 0.0)] * len(self._deleted)
        for name in self.wrong:
            if self.place.tiny.versions(self._output(name)):
                self.problems.append(f"{name}: a wrong job has published")

    def _judge_good(self, name: str, status: Manifest) -> None:
        if status["phase"] != "Succeeded" or status["attempt"] != 1:
            self.problems.append(f"{name}: {status['phase']} in attempt {status['attempt']}")
            return
        output = self._output(name)
        try:
            self.place.tiny.check(output)
            assert self.place.tiny.versions(output) == [status["output"]["version"]]
        except AssertionError as error:
            self.problems.append(f"{name}: published something else: {error}")
        self.ended.append(Ended("good", "Complete", _seconds(status)))

    def _judge_wrong(self, name: str, kind: Wrong, job: Manifest, row: str) -> None:
        status = job["status"]
        stalled = find_condition(status, "Stalled").get("message", "")
        if kind.reason not in row:
            self.problems.append(f"{name}: kubectl get has no {kind.reason}: {row}")
        self._expect(name, kind, kind.reason, stalled, _seconds(status))

    def _expect(self, name: str, kind: Wrong, cause: str, said: str, seconds: float) -> None:
        if not re.search(kind.words, said, re.DOTALL):
            self.problems.append(f"{name}: no {kind.words!r} in: {said}")
        self.ended.append(Ended(name.rpartition("-")[0], cause, seconds))

    def _delete(self) -> None:
        """Delete every job; nothing but the versions of good ones is left."""
        for jobs in (self.place.jobs, self.place.narrow):
            jobs.kubectl("delete", "ej", "--all", "--wait=false")
        for jobs in (self.place.jobs, self.place.narrow):
            self._await_no_objects(jobs)
        for name in (*self.wrong, *self.good):
            if left := self.place.tiny.leftovers(self._output(name)):
                self.problems.append(f"{name} has left {left}")
        s3 = self.place.jobs.cluster.s3
        client: Any = boto3.client("s3", endpoint_url=s3.endpoint)
        uploads = client.list_multipart_uploads(Bucket=s3.bucket, Prefix=self.place.jobs.namespace)
        self.problems += [f"upload {item['Key']} is left" for item in uploads.get("Uploads", [])]

    def _await_no_objects(self, jobs: Jobs) -> None:
        labelled = ("get", _CHILDREN, "-l", "embertide.dev/job", "-o", "name")
        try:
            jobs.cluster.wait_for(lambda: not jobs.kubectl(*labelled), _GONE_SECONDS, "objects")
        except AssertionError:
            self.problems.append(f"objects are left: {jobs.kubectl(*labelled)}")

    def _jobs(self, kind: Wrong) -> Jobs:
        return self.place.narrow if kind.narrow else self.place.jobs

    def _output(self, name: str) -> str:
        return f"{self.place.jobs.root}/{name}"

    def _all(self) -> dict[str, Manifest]:
        """Every job by name."""
        return self.place.jobs.all() | self.place.narrow.all()

    def _statuses(self) -> dict[str, Manifest]:
        return {name: job.get("status", {}) for name, job in self._all().items()}

    def _rows(self) -> dict[str, str]:
        """What ``kubectl get -o wide`` shows of each job."""
        tables = (
            jobs.kubectl("get", "ej", "-o", "wide", "--no-headers")
            for jobs in (self.place.jobs, self.place.narrow)
        )
        return {row.split()[0]: row for table in tables for row in table.splitlines()}

    def table(self) -> str:
        """How often each cause was seen, and how long it took, in lines."""
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for item in self.ended:
            found[item.kind, item.cause].append(item.seconds)
        lines = [f"{'kind':16} {'seen as':28} jobs  seconds (least, most)"]
        for (kind, cause), seconds in sorted(found.items()):
            times = f"{min(seconds):.0f} {max(seconds):.0f}"
            lines.append(f"{kind:16} {cause:28} {len(seconds):4}  {times}")
        return "\n".join(lines)


def _plain(place: Place, name: str) -> Manifest:
    return _good(place, name, workers())


def _pair(place: Place, name: str) -> Manifest:
    return _good(place, name, workers(2, 1))


def _planned(place: Place, name: str) -> Manifest:
    """The operator plans its grid."""
    return _good(place, name, {"count": 1})


def _good(place: Place, name: str, spec: Manifest) -> Manifest:
    output = f"{place.jobs.root}/{name}"
    return place.tiny.job(name, output, workers=spec, operatorClass=RELEASE)


def _seconds(status: Manifest) -> float:
    """From the first attempt to the end; 0 where there was none."""
    if "startTime" not in status or "completionTime" not in status:
        return 0.0
    times = (datetime.fromisoformat(status[name]) for name in ("startTime", "completionTime"))
    began, ended = times
    return (ended - began).total_seconds()


def run_trial(
    cluster: KubernetesCluster, inputs: tuple[Inputs, Inputs, Inputs], good: int, wrong: int
) -> Trial:
    """Run so many good and wrong jobs, and an operator for them.

    Args:
        inputs: of good jobs, of another width, and such that take some seconds.
    """
    jobs, narrow = (Jobs(cluster, cluster.namespace(name)) for name in (RELEASE, "narrow"))
    place = Place(jobs, narrow, *inputs)
    place.prepare()
    trial = Trial.of(place, good, wrong)
    with trial_operator(cluster, jobs.namespace, narrow.namespace) as problems:
        trial.run()
    trial.problems += problems
    return trial


@contextmanager
def trial_operator(cluster: KubernetesCluster, *watched: str) -> Iterator[list[str]]:
    """A release with a class of its own; yields the list of what it does wrong, full at the end."""
    namespace, problems = cluster.namespace(RELEASE), list[str]()
    values = release_values(cluster) | {
        "operator": {"class": RELEASE},
        "watchNamespaces": list(watched),
        "crds": {"install": False},
        "mistakeSeconds": _MISTAKE_SECONDS,
        "maxWorkersPerJob": AT_ONCE,
        "maxRunningWorkers": AT_ONCE,
    }
    place = ("--namespace", namespace)
    cluster.helm("install", RELEASE, str(CHART), *place, *options(values), "--wait")
    try:
        yield problems
        problems += _problems_of(cluster, namespace)
    finally:
        cluster.helm("uninstall", RELEASE, *place)
        for name in (namespace, *watched):
            cluster.discard(name)


def _problems_of(cluster: KubernetesCluster, namespace: str) -> list[str]:
    """Restarts of the operator, and lines of its log that only a fault of its own writes."""
    (pod,) = cluster.get("-n", namespace, "pods", "-l", "app.kubernetes.io/component=operator")[
        "items"
    ]
    problems = [
        f"the operator was restarted {status['restartCount']} times"
        for status in pod["status"]["containerStatuses"]
        if status["restartCount"]
    ]
    log = cluster.kubectl("-n", namespace, "logs", pod["metadata"]["name"]).splitlines()
    return problems + [f"operator: {line}" for line in log if _LOG_PROBLEMS.search(line)]
