"""Which job may start: one for each output, oldest first, and only as many as there is room for."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest

from embertide_operator.runtime.admission import (
    Admission,
    Verdict,
    place_text,
)
from embertide_operator.runtime.capacity import Entry, Limits, Running, State, first_in_line
from tests.support.operator_world import raw_job

PHASES = {"holds": "Running", "ready": "Pending", "inactive": "Succeeded"}


def job(name: str, second: int = 0, *, namespace: str = "shop", **more: Any) -> dict[str, Any]:
    """A job with an output of its own, created in this second."""
    output = more.pop("output", name)
    found = raw_job(output={"uri": f"s3://shop/{output}"}, **more)
    found["metadata"] |= {
        "name": name,
        "uid": f"uid-{namespace}-{name}",
        "namespace": namespace,
        "creationTimestamp": f"2026-11-21T11:00:{second:02}Z",
    }
    return found


def in_phase(found: dict[str, Any], phase: str) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase, "conditions": []}
    if phase == "Succeeded":
        status["conditions"] = [{"type": "Complete", "status": "True"}]
    return found | {"status": status}


def knowing(*jobs: dict[str, Any], total: int = 0, per_namespace: int = 0) -> Admission:
    admission = Admission(Limits(total, per_namespace))
    for item in jobs:
        admission.note(item)
    return admission


def entry(name: str, second: int, namespace: str = "shop", workers: int = 1) -> Entry:
    key, age = (namespace, name), (f"{second:02}", name)
    return Entry(key, age, name, State.READY, workers=workers)


def running(jobs: int, workers: int = 0) -> Running:
    """So many jobs and workers in namespace ``shop``."""
    return Running(Counter(shop=jobs), Counter(shop=workers or jobs))


class TestOtherOperators:
    """Their jobs keep their outputs, and count neither as waiting nor as running."""

    def test_a_running_one_keeps_its_output_and_takes_no_room(self) -> None:
        admission = knowing(job("ours", 2, output="x"), job("free", 3), total=1)
        admission.note(in_phase(job("theirs", 1, output="x"), PHASES["holds"]), ours=False)
        assert "shop/theirs is publishing" in admission.ask(job("ours", 2, output="x")).competing
        assert admission.ask(job("free", 3)) == Verdict()

    def test_one_that_waits_holds_up_nobody(self) -> None:
        admission = knowing(job("ours", 2, output="x"), total=1)
        admission.note(job("theirs", 1, output="x"), ours=False)
        assert admission.waiting() == 1
        assert admission.ask(job("ours", 2, output="x")) == Verdict()

    def test_one_that_is_taken_over_counts(self) -> None:
        theirs = in_phase(job("theirs", 1), PHASES["holds"])
        admission = knowing(job("ours", 2), total=1)
        admission.note(theirs, ours=False)
        admission.note(theirs, ours=True)
        assert "at most 1 jobs run" in admission.ask(job("ours", 2)).queued


class TestFirstInLine:
    def test_without_limits_all_may_start(self) -> None:
        line = [entry("a", 1), entry("b", 2)]
        assert first_in_line(line, running(1000), Limits()) == line

    def test_the_oldest_take_the_room_that_is_left(self) -> None:
        line = [entry("a", 1), entry("b", 2), entry("c", 3)]
        assert first_in_line(line, running(3), Limits(total=5)) == line[:2]
        assert first_in_line(line, running(7), Limits(total=5)) == []

    def test_a_full_namespace_lets_the_next_one_pass(self) -> None:
        line = [entry("a", 1), entry("b", 2), entry("c", 3, "other"), entry("d", 4)]
        limits = Limits(total=4, per_namespace=2)
        assert first_in_line(line, running(1), limits) == [line[0], line[2]]


@pytest.mark.parametrize(
    ("place", "length", "text"),
    [
        (1, 3, "position 1 of 3"),
        (10, 950, "position 10 of 950"),
        (11, 950, "more than 10 jobs wait before it"),
        (47, 950, "more than 40 jobs wait before it"),
        (501, 950, "more than 500 jobs wait before it"),
    ],
)
def test_places_far_behind_are_rounded(place: int, length: int, text: str) -> None:
    assert place_text(place, length) == text


def test_a_place_is_held_while_a_pass_runs() -> None:
    """Both passes begin before either has written a status."""
    first, second = job("a", 1), job("b", 2)
    admission = knowing(first, second, total=1)
    assert admission.ask(first) == Verdict()
    assert admission.ask(second).queued == "at most 1 jobs run at once; position 2 of 2"
    admission.note(in_phase(first, "Starting"))
    assert admission.release(first["metadata"]["uid"], in_phase(first, "Starting")) == []
    assert admission.ask(second).queued.endswith("position 1 of 1")


def test_a_pass_that_did_not_start_its_job_gives_the_place_back() -> None:
    first, second = job("a", 1), job("b", 2)
    admission = knowing(first, second, total=1)
    admission.ask(first)
    suspended = job("a", 1, suspend=True)
    assert ("shop", "b") in admission.release(first["metadata"]["uid"], suspended)
    assert admission.ask(second) == Verdict()


def test_the_next_are_woken_when_one_ends() -> None:
    running = in_phase(job("a", 1), "Running")
    admission = knowing(running, job("b", 2), job("c", 3), total=1)
    assert admission.note(in_phase(running, "Succeeded")) == [("shop", "b")]
    running = in_phase(job("b", 2), "Running")
    admission.note(running)
    assert admission.forget(running["metadata"]["uid"]) == [("shop", "c")]


def test_a_job_between_two_attempts_keeps_its_room() -> None:
    admission = knowing(in_phase(job("a", 1), "Restarting"), job("b", 2), total=1)
    assert "position 1" in admission.ask(job("b", 2)).queued


def test_one_output_is_one_job_at_a_time_and_the_next_is_woken() -> None:
    holder = in_phase(job("a", 2, output="same"), "Running")
    old, young = job("b", 1, output="same"), job("c", 3, output="same")
    admission = knowing(holder, old, young)
    assert admission.ask(old).competing == "shop/a is publishing to s3://shop/same"
    assert admission.ask(young).competing == "shop/a is publishing to s3://shop/same"
    assert admission.note(in_phase(holder, "Succeeded")) == [("shop", "b")]
    assert admission.ask(young).competing == (
        "shop/b publishes to s3://shop/same and was created earlier"
    )
    assert admission.ask(old) == Verdict()
    assert admission.ask(young).competing == "shop/b is publishing to s3://shop/same"


def test_who_waits_for_an_output_takes_no_room() -> None:
    """Five jobs of one output and one of another, room for two: the sixth need not wait."""
    same = [job(f"s{number}", number, output="same") for number in range(5)]
    other = job("z", 9)
    admission = knowing(*same, other, total=2)
    assert admission.ask(same[0]) == Verdict()
    assert admission.ask(other) == Verdict()
    assert admission.waiting() == 2


@pytest.mark.parametrize("inactive", [{"suspend": True}, {"deleted": True}, {"rejected": True}])
def test_who_cannot_start_is_waited_for_by_nobody(inactive: dict[str, bool]) -> None:
    first = job("a", 1, output="same", **{k: v for k, v in inactive.items() if k == "suspend"})
    if "deleted" in inactive:
        first["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:30Z"
    if "rejected" in inactive:
        refused = {"type": "Accepted", "status": "False"}
        first["status"] = {"phase": "Pending", "conditions": [refused]}
    second = job("b", 2, output="same")
    assert knowing(first, second, total=1).ask(second) == Verdict()


def test_a_rejected_job_asks_again_once_it_is_put_right() -> None:
    """The pass that finds it right starts it at once, and has to ask like any other."""
    first = job("a", 1)
    first["status"] = {"conditions": [{"type": "Accepted", "status": "False"}]}
    admission = knowing(first, in_phase(job("b", 2), "Running"), total=1)
    assert "position 1 of 1" in admission.ask(first).queued
    admission.release(first["metadata"]["uid"], first)
    assert admission.waiting() == 0


def test_it_is_clear_whether_a_waiting_job_shows_the_reason() -> None:
    waiting = job("b", 2)
    admission = knowing(in_phase(job("a", 1), "Running"), waiting, total=1)
    assert not admission.shows_reason(waiting)
    why = {"type": "Progressing", "message": f"waiting for room: {admission.ask(waiting).queued}"}
    told = waiting | {"status": {"phase": "Pending", "conditions": [why]}}
    assert admission.shows_reason(told)
    admission.note(in_phase(job("a", 1), "Succeeded"))
    assert not admission.shows_reason(told), "it may start"


def test_never_more_than_allowed_however_passes_interleave() -> None:
    """Threads start and end jobs at random; the limits hold at every moment."""
    jobs = [job(f"j{n}", n % 60, namespace=f"ns{n % 3}", output=f"o{n % 40}") for n in range(120)]
    admission = knowing(*jobs, total=7, per_namespace=3)
    running: dict[str, dict[str, Any]] = {}
    lock, worst = threading.Lock(), Counter[str]()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for item in chance.sample(jobs, 60):
            uid = item["metadata"]["uid"]
            with lock:
                if uid in running or ended.get(uid):
                    continue
                if uid in taken:
                    continue
                taken.add(uid)
            started = admission.ask(item) == Verdict()
            if started:
                with lock:
                    running[uid] = item
                    spaces = Counter(r["metadata"]["namespace"] for r in running.values())
                    worst["total"] = max(worst["total"], len(running))
                    worst["space"] = max(worst["space"], *spaces.values())
                    outputs = Counter(r["spec"]["output"]["uri"] for r in running.values())
                    worst["output"] = max(worst["output"], *outputs.values())
                admission.note(in_phase(item, "Running"))
            admission.release(uid, in_phase(item, "Running") if started else item)
            if started and chance.random() < 0.9:
                with lock:
                    del running[uid]
                    ended[uid] = True
                admission.note(in_phase(item, "Succeeded"))
            with lock:
                taken.discard(uid)

    ended: dict[str, bool] = {}
    taken: set[str] = set()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst["total"] <= 7
    assert worst["space"] <= 3
    assert worst["output"] == 1
    assert len(ended) > 20, "jobs did run"
