"""Room for jobs and for their workers: what is taken, what a job takes, and who comes first.

A job takes the workers that its spec asks for, else those of its plan. One whose number is not
known before it is planned counts as one, its planner, and asks again with the plan
(:func:`asks_again`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.runtime.work_queue import Key

Age = tuple[str, str]
"""When a job was created, and its UID: the order in which jobs may start."""


@dataclass(frozen=True)
class Limits:
    """How many jobs and workers may run at once; 0 for any number.

    Attributes:
        total: jobs in all.
        per_namespace: jobs in each namespace.
        workers: workers of all jobs.
        workers_per_namespace: workers of the jobs of each namespace.
    """

    total: int = 0
    per_namespace: int = 0
    workers: int = 0
    workers_per_namespace: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those of an operator."""
        return cls(
            settings.max_running_jobs,
            settings.max_running_jobs_per_namespace,
            settings.max_running_workers,
            settings.max_running_workers_per_namespace,
        )

    def never(self, entry: Entry) -> bool:
        """Whether a job has more workers than may run at all; it is rejected by its pass."""
        bounds = (self.workers, self.workers_per_namespace)
        return any(bound and entry.workers > bound for bound in bounds)


class State(Enum):
    """What a job is to others: it runs, could start, could but for its inputs, or is none of it."""

    HOLDS = "holds"
    READY = "ready"
    WAITING = "waiting"
    INACTIVE = "inactive"


@dataclass(frozen=True)
class Entry:
    """What the index keeps of a job; that of another operator only holds its output.

    Attributes:
        workers: how many it takes.
        asks: it has begun, and asks for room again before its next workers start.
    """

    key: Key
    age: Age
    output: str
    state: State
    ours: bool = True
    workers: int = 1
    asks: bool = False

    @property
    def uid(self) -> str:
        """The job's."""
        return self.age[1]

    @property
    def title(self) -> str:
        """Namespace and name, as messages have them."""
        return "/".join(self.key)


@dataclass
class Running:
    """How many jobs and workers run in each namespace."""

    jobs: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)

    def copy(self) -> Running:
        """The same numbers, to be changed apart from these."""
        return Running(self.jobs.copy(), self.workers.copy())

    def add(self, entry: Entry, sign: int = 1) -> None:
        """Count one job more, or with -1 one less."""
        self.jobs[entry.key[0]] += sign
        self.workers[entry.key[0]] += sign * entry.workers

    def why_full(self, entry: Entry, limits: Limits) -> str:
        """Why there is no room for a job beside what runs; "" where there is."""
        return self.why_full_namespace(entry, limits) or self.why_full_total(entry, limits)

    def why_full_namespace(self, entry: Entry, limits: Limits) -> str:
        """The same of the room in its namespace."""
        namespace, most = entry.key[0], limits.per_namespace
        if most and self.jobs[namespace] >= most:
            return f"at most {most} jobs run at once in namespace {namespace}"
        most = limits.workers_per_namespace
        if most and self.workers[namespace] + entry.workers > most:
            return f"{_limit(entry, most)} in namespace {namespace}"
        return ""

    def why_full_total(self, entry: Entry, limits: Limits) -> str:
        """The same of the room in all."""
        if limits.total and self.jobs.total() >= limits.total:
            return f"at most {limits.total} jobs run at once"
        if limits.workers and self.workers.total() + entry.workers > limits.workers:
            return _limit(entry, limits.workers)
        return ""


def _limit(entry: Entry, most: int) -> str:
    """Without how many run now, so that the message does not change with every job."""
    return f"it takes {entry.workers} workers, and at most {most} workers run at once"


def first_in_line(line: Iterable[Entry], running: Running, limits: Limits) -> list[Entry]:
    """Those of a line, oldest first, that may start now.

    A job that waits for room in its namespace lets no later job of that namespace pass, and one
    that waits for room in all lets none pass: else small jobs would keep a large one waiting.
    """
    taken, full = running.copy(), set[str]()
    startable: list[Entry] = []
    for entry in line:
        namespace = entry.key[0]
        if namespace in full or limits.never(entry):
            continue
        if taken.why_full_namespace(entry, limits):
            full.add(namespace)
        elif taken.why_full_total(entry, limits):
            break
        else:
            taken.add(entry)
            startable.append(entry)
    return startable


def workers_of_job(job: Object) -> int:
    """How many workers a job takes as far as that is known, whatever its spec may be."""
    planned = ((job.get("status") or {}).get("plan") or {}).get("replicas")
    return asked_workers(job) or planned or 1


def asked_workers(job: Object) -> int | None:
    """The number of workers that a spec asks for; None where its plan has to say it."""
    workers = job["spec"].get("workers") or {}
    grid, count = workers.get("grid"), workers.get("count")
    sides = (grid.get("graph", 1), grid.get("feature", 1)) if isinstance(grid, dict) else (count,)
    if not all(isinstance(side, int) for side in sides):
        return None
    return math.prod(sides)


def asks_again(job: Object) -> bool:
    """Whether a job that has begun may want more workers than it has asked room for.

    So it is when it was planned and its workers were not started, and between two attempts.
    """
    status = job.get("status") or {}
    phase = status.get("phase")
    return phase == "Restarting" or (phase == "Planning" and bool(status.get("plan")))
