"""Which job may start: one for each output at a time, and no more at once than there is room for.

A started job keeps its output and its room until it has ended, also between two attempts. Room is
counted in jobs and in workers; a job whose number of workers changes, by its plan or its spec, asks
again before they start (``capacity.py``). Among those that wait the oldest comes first; one whose
namespace is full lets those of other namespaces pass. A job that waits for its inputs is in no line
and takes no room, but younger ones do not overtake it to its output: readers would get its older
data last. Who
holds, waits and is ready is kept by an index that every change of a job updates, so a question
costs the jobs of one output and not all. Concurrent passes cannot start two jobs where one may: a
pass whose job may start holds the place until it is released.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from dataclasses import dataclass, field

from embertide_operator.api.routes import Object
from embertide_operator.job.observe import (
    condition,
    holds_output,
    is_finished,
    output_of,
    waits_for_inputs,
)
from embertide_operator.runtime.capacity import (
    Age,
    Entry,
    Limits,
    Running,
    State,
    asks_again,
    first_in_line,
    workers_of_job,
)
from embertide_operator.runtime.work_queue import Key

_EXACT_PLACES = 10
_TENS_UNTIL = 100
_UNSTARTED = (State.READY, State.WAITING)


@dataclass(frozen=True)
class Verdict:
    """Whether a job may start; a message that is not empty says why it has to wait.

    Attributes:
        competing: for which job with the same output.
        queued: for room, and in which place.
    """

    competing: str = ""
    queued: str = ""


def entry_of(job: Object, rejected: State = State.INACTIVE, *, ours: bool = True) -> Entry:
    """The entry of a job; ``rejected`` is the state of one whose spec is refused."""
    meta = job["metadata"]
    if meta.get("deletionTimestamp") or is_finished(job):
        state = State.INACTIVE
    elif holds_output(job):
        state = State.HOLDS
    elif not ours or job["spec"].get("suspend"):
        state = State.INACTIVE
    elif condition(job, "Accepted").get("status") == "False":
        state = rejected
    else:
        state = State.WAITING if waits_for_inputs(job) else State.READY
    key = (meta["namespace"], meta["name"])
    return Entry(
        key,
        (meta["creationTimestamp"], meta["uid"]),
        output_of(job),
        state,
        ours,
        workers=workers_of_job(job),
        asks=asks_again(job),
    )


def place_text(place: int, length: int) -> str:
    """A place in a line, from 1. Exact at its head only, so that few messages change with it."""
    if place > _EXACT_PLACES:
        step = 10 if place <= _TENS_UNTIL else 100
        return f"more than {(place - 1) // step * step} jobs wait before it"
    return f"position {place} of {length}"


@dataclass
class Admission:
    """The index of jobs by output, and the line of those that wait for room; thread-safe."""

    limits: Limits
    _entries: dict[str, Entry] = field(default_factory=dict)  # by UID
    _outputs: dict[str, set[str]] = field(default_factory=dict)  # UIDs by output
    _line: list[Entry] = field(default_factory=list)  # sorted by age
    _running: Running = field(default_factory=Running)
    _reserved: dict[str, Entry] = field(default_factory=dict)  # by UID
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def note(self, job: Object, *, ours: bool = True) -> list[Key]:
        """A job is there or has changed; the jobs that may now start, or wait for another one."""
        return self._replace(job["metadata"]["uid"], entry_of(job, ours=ours))

    def forget(self, uid: str) -> list[Key]:
        """A job is gone; as :meth:`note`."""
        return self._replace(uid, None)

    def ask(self, job: Object) -> Verdict:
        """Whether a job may start now; its place is then held until :meth:`release`."""
        with self._lock:
            entry = self._to_start(job)
            if entry is None:
                return self._judge_again(job["metadata"]["uid"])
            if entry.uid in self._reserved:
                return Verdict()
            if entry.state is State.WAITING:
                return Verdict(competing=self._rival(entry))
            verdict = self._judge(entry)
            if verdict == Verdict():
                self._reserved[entry.uid] = entry
            return verdict

    def shows_reason(self, job: Object) -> bool:
        """Whether a job that waits says so already, for the right reason; else it needs a pass."""
        with self._lock:
            entry = self._entries.get(job["metadata"]["uid"])
            if entry is None or entry.state not in _UNSTARTED:
                return False
            waits = entry.state is State.WAITING
            verdict = Verdict(competing=self._rival(entry)) if waits else self._judge(entry)
            why = verdict.competing or verdict.queued
            return bool(why) and why in condition(job, "Progressing").get("message", "")

    def _judge(self, entry: Entry) -> Verdict:
        if rival := self._rival(entry):
            return Verdict(competing=rival)
        if self._is_limited and entry not in self._startable():
            return Verdict(queued=self._why_queued(entry))
        return Verdict()

    def _judge_again(self, uid: str) -> Verdict:
        """Whether a job that has begun may start the workers that it wants by now."""
        entry = self._entries.get(uid)
        if entry is None or entry.state is not State.HOLDS or not (entry.asks and entry.ours):
            return Verdict()
        others = self._taken()
        others.add(entry, -1)
        return Verdict(queued=others.why_full(entry, self.limits))

    def release(self, uid: str, job: Object | None, *, ours: bool = True) -> list[Key]:
        """The pass that asked for a job has ended, and left it so; as :meth:`note`."""
        with self._lock:
            held = self._reserved.pop(uid, None)
            woken = self._replace(uid, entry_of(job, ours=ours) if job is not None else None)
            if held is None or self._holds(uid):
                return woken
            # The next one may have the place, the job itself comes back by itself.
            return [key for key in (*woken, *self._woken(held.output)) if key != held.key]

    def waiting(self) -> int:
        """How many jobs could start if there were room."""
        return len(self._line)

    def _to_start(self, job: Object) -> Entry | None:
        """The entry of a job that wants to start; None for others.

        One that was rejected is in no line, but its pass may find that nothing is wrong any more.
        """
        entry = entry_of(job, rejected=State.READY)
        known = self._entries.get(entry.uid)
        if entry.state not in _UNSTARTED or known is None or known.state is State.HOLDS:
            return None
        if known.state is State.INACTIVE:
            self._replace(entry.uid, entry)
        return entry

    def _replace(self, uid: str, new: Entry | None) -> list[Key]:
        with self._lock:
            old = self._entries.get(uid)
            if old == new:
                return []
            changed = [entry for entry in (old, new) if entry is not None]
            outputs = dict.fromkeys(entry.output for entry in changed)
            for output in outputs:
                self._leave_line(output)
            if old is not None:
                self._drop(old)
            if new is not None:
                self._keep(new)
            for output in outputs:
                self._join_line(output)
            return list(dict.fromkeys(key for output in outputs for key in self._woken(output)))

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.uid] = entry
        self._outputs.setdefault(entry.output, set()).add(entry.uid)
        if entry.state is State.HOLDS and entry.ours:
            self._running.add(entry)

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry.uid]
        uids = self._outputs[entry.output]
        uids.discard(entry.uid)
        if not uids:
            del self._outputs[entry.output]
        if entry.state is State.HOLDS and entry.ours:
            self._running.add(entry, -1)

    def _of_output(self, output: str) -> list[Entry]:
        return [self._entries[uid] for uid in self._outputs.get(output, ())]

    def _first(self, output: str) -> Entry | None:
        """The next job of an output: the oldest, unless one holds the output."""
        entries = self._of_output(output)
        if any(entry.state is State.HOLDS for entry in entries):
            return None
        unstarted = [entry for entry in entries if entry.state in _UNSTARTED]
        return min(unstarted, key=_age, default=None)

    def _in_line(self, output: str) -> Entry | None:
        """The job of an output that is in the line: the next one, if its inputs are ready."""
        entry = self._first(output)
        return entry if entry is not None and entry.state is State.READY else None

    def _join_line(self, output: str) -> None:
        if (entry := self._in_line(output)) is not None:
            insort(self._line, entry, key=_age)

    def _leave_line(self, output: str) -> None:
        if (entry := self._in_line(output)) is not None:
            del self._line[bisect_left(self._line, entry.age, key=_age)]

    def _rival(self, entry: Entry) -> str:
        """The job with the same output that runs first, and why; "" for none."""
        others = [other for other in self._of_output(entry.output) if other.uid != entry.uid]
        for other in others:
            if other.state is State.HOLDS or other.uid in self._reserved:
                return f"{other.title} is publishing to {entry.output}"
        older = [o for o in others if o.state in _UNSTARTED and o.age < entry.age]
        if not older:
            return ""
        first = min(older, key=_age)
        if first.state is State.WAITING:
            return (
                f"{first.title} waits for its inputs, publishes to {entry.output} and was created"
                " earlier"
            )
        return f"{first.title} publishes to {entry.output} and was created earlier"

    def _startable(self) -> list[Entry]:
        """Those that may start now, besides those whose place is held."""
        line = (entry for entry in self._line if entry.uid not in self._reserved)
        return first_in_line(line, self._taken(), self.limits)

    def _taken(self) -> Running:
        """What runs, and what may start and has not yet."""
        taken = self._running.copy()
        for uid, entry in self._reserved.items():
            if not self._holds(uid):
                taken.add(entry)
        return taken

    def _holds(self, uid: str) -> bool:
        return uid in self._entries and self._entries[uid].state is State.HOLDS

    def _why_queued(self, entry: Entry) -> str:
        place = place_text(bisect_left(self._line, entry.age, key=_age) + 1, len(self._line))
        why = self._taken().why_full(entry, self.limits)
        return f"{why or 'a job that was created earlier waits for more room'}; {place}"

    def _woken(self, output: str) -> list[Key]:
        """Whom a change of an output's jobs concerns: those that may start, and its next job."""
        found = self._startable() if self._is_limited else []
        first = self._first(output)
        return [entry.key for entry in (*found, *([first] if first is not None else []))]

    @property
    def _is_limited(self) -> bool:
        return self.limits != Limits()


def _age(entry: Entry) -> Age:
    return entry.age
