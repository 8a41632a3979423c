"""Room for workers: a ceiling for each job, for each namespace and for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from embertide.spec.grid import GridShape
from embertide.spec.reports import PlanResult
from embertide_operator.config.settings import Settings
from embertide_operator.runtime.admission import Admission, Verdict
from embertide_operator.runtime.capacity import Limits, workers_of_job
from tests.unit.test_admission import in_phase, job, knowing

AUTO: dict[str, Any] = {"grid": "auto"}


def with_workers(name: str, second: int, workers: int, namespace: str = "shop") -> dict[str, Any]:
    item = job(name, second, namespace=namespace)
    item["spec"]["workers"] = {"grid": {"graph": workers, "feature": 1}}
    return item


def limited(*jobs: dict[str, Any], **limits: int) -> Admission:
    admission = Admission(Limits(**limits))
    for item in jobs:
        admission.note(item)
    return admission


def test_workers_of_all_jobs_are_counted() -> None:
    running = in_phase(with_workers("a", 1, 6), "Running")
    large, small = with_workers("b", 2, 5), with_workers("c", 3, 4)
    admission = limited(running, large, small, workers=10)
    assert admission.ask(large).queued == (
        "it takes 5 workers, and at most 10 workers run at once; position 1 of 2"
    )
    assert "a job that was created earlier waits" in admission.ask(small).queued, "none overtakes"
    assert admission.note(in_phase(running, "Succeeded")) == [("shop", "b"), ("shop", "c")]
    assert admission.ask(large) == Verdict() == admission.ask(small)


def test_workers_of_a_namespace_hold_up_that_namespace_alone() -> None:
    running = in_phase(with_workers("a", 1, 6), "Running")
    large, small = with_workers("b", 2, 5), with_workers("c", 3, 4)
    other = with_workers("d", 4, 10, "ads")
    admission = limited(running, large, small, other, workers_per_namespace=10)
    assert "at most 10 workers run at once in namespace shop" in admission.ask(large).queued
    assert admission.ask(small).queued
    assert admission.ask(other) == Verdict()


def test_a_place_that_is_held_counts_with_its_workers() -> None:
    """Two passes at once: the second sees what the first is about to start."""
    first, second = with_workers("a", 1, 6), with_workers("b", 2, 5)
    admission = limited(first, second, workers=10)
    assert admission.ask(first) == Verdict()
    assert admission.ask(second).queued


def test_a_job_with_more_workers_than_may_ever_run_holds_up_nobody() -> None:
    endless, small = with_workers("a", 1, 11), with_workers("b", 2, 4)
    admission = limited(endless, small, workers=10)
    assert admission.ask(small) == Verdict()


def test_a_planned_job_asks_again() -> None:
    """Before its plan it counts as its planner."""
    planned = in_phase(job("a", 1, workers=AUTO), "Planning")
    admission = limited(in_phase(with_workers("b", 2, 6), "Running"), planned, workers=10)
    assert admission.ask(planned) == Verdict()
    planned["status"]["plan"] = {"grid": "8x1", "replicas": 8}
    admission.note(planned)
    assert admission.ask(planned).queued == "it takes 8 workers, and at most 10 workers run at once"
    admission.note(in_phase(with_workers("b", 2, 6), "Succeeded"))
    assert admission.ask(planned) == Verdict()


def test_a_job_that_grows_between_two_attempts_asks_again() -> None:
    grown = in_phase(with_workers("a", 1, 9), "Restarting")
    admission = limited(in_phase(with_workers("b", 2, 6), "Running"), grown, workers=10)
    assert "it takes 9 workers" in admission.ask(grown).queued


def test_a_job_between_two_attempts_has_room_for_as_many_as_before() -> None:
    same = in_phase(with_workers("a", 1, 4), "Restarting")
    waiting = with_workers("c", 3, 1)
    admission = limited(in_phase(with_workers("b", 2, 6), "Running"), same, waiting, workers=10)
    assert admission.ask(same) == Verdict()
    assert admission.ask(waiting).queued


@pytest.mark.parametrize(
    ("workers", "plan", "expected"),
    [
        ({"grid": {"graph": 3, "feature": 2}}, {}, 6),
        ({"grid": "auto", "count": 7}, {}, 7),
        ({"grid": "auto"}, {"replicas": 16}, 16),
        ({"grid": {"graph": 3}}, {"replicas": 2}, 3),
        ({}, {}, 1),
        ({"grid": {"graph": "many"}}, {}, 1),
    ],
)
def test_how_many_workers_a_job_takes(
    workers: dict[str, Any], plan: dict[str, Any], expected: int
) -> None:
    item = job("a", workers=workers) | {"status": {"plan": plan}}
    assert workers_of_job(item) == expected


# The operator's decision


def test_a_plan_of_many_tables_still_fits_a_message() -> None:
    sizes = {"memory_per_worker_bytes": 1 << 30, "bytes_exchanged": 1, "nodes": 9, "edges": 9}
    tables = {f"nodes[{at}].features": 2**62 + at for at in range(128)}
    text = PlanResult(grid=GridShape(), **sizes, tables=tables).to_text()
    assert len(text.encode()) <= 4000
    plan = PlanResult.parse(text)
    assert plan is not None
    assert (plan.nodes, plan.tables) == (9, {})


def test_the_least_limit_is_the_ceiling() -> None:
    settings = Settings(max_running_workers=64, max_running_workers_per_namespace=128)
    assert settings.most_workers == (64, "maxRunningWorkers")
    unlimited = Settings(max_workers_per_job=0, max_running_workers=0)
    assert unlimited.most_workers == (0, "")


def test_without_limits_of_workers_any_job_may_start() -> None:
    assert knowing(with_workers("a", 1, 1024)).ask(with_workers("a", 1, 1024)) == Verdict()
