"""What is said between two reports of a stage, and what of it counts as progress."""

from __future__ import annotations

from pathlib import Path

from embertide.facts.telemetry.progress import Progress
from embertide.launch.pulse import Counts, Pulse
from embertide.launch.run_folder import RunFolder
from embertide.pod.board import Board
from embertide.pod.progress import ProgressReporter
from embertide.pod.settings import read_settings
from embertide.spec.reports import ProgressReport


class Work:
    """Counts that move when the test says so."""

    def __init__(self) -> None:
        self.steps = self.edges = 0

    def __call__(self) -> Counts:
        return Counts(self.steps, self.edges)


def test_a_silent_stage_is_heard_while_it_works() -> None:
    work, seen = Work(), list[Progress]()
    pulse = Pulse(seen.append, work)
    pulse(Progress("csr"))
    for steps in (0, 3, 3, 9):
        work.steps = steps
        pulse.beat()
    assert seen == [Progress("csr"), Progress("csr", steps=3), Progress("csr", steps=9)]


def test_the_fraction_follows_the_edges_that_were_told_ahead() -> None:
    work, seen = Work(), list[Progress]()
    work.edges = 1000
    pulse = Pulse(seen.append, work)
    pulse(Progress("infer", 2, 4, 0.25))
    pulse.ahead(0.5, 200)
    for edges in (1000, 1100, 1150, 1300):
        work.steps, work.edges = work.steps + 1, edges
        pulse.beat()
    assert [event.fraction for event in seen[1:]] == [0.25, 0.375, 0.4375, 0.5]
    pulse(Progress("infer", 3, 4, 0.5))
    work.steps, work.edges = 99, 5000
    pulse.beat()
    assert seen[-1].fraction == 0.5, "nothing was told ahead of this step"


def test_a_step_without_edges_is_done_at_once() -> None:
    work, seen = Work(), list[Progress]()
    pulse = Pulse(seen.append, work)
    pulse.ahead(0.5, 0)
    work.steps = 1
    pulse.beat()
    assert seen[0].fraction == 0.0


ENV = {
    "EMBERTIDE_JOB_UID": "9c2f",
    "EMBERTIDE_ATTEMPT": "1",
    "EMBERTIDE_GRID": "1x1",
    "EMBERTIDE_RANK": "0",
    "EMBERTIDE_VERSION": "20261121T041922Z-3fa9c1",
    "EMBERTIDE_RENDEZVOUS": "localhost:29500",
}


def steps_of(*events: Progress) -> list[int]:
    """What /status says after each."""
    board = Board(read_settings(ENV))
    reporter, found = ProgressReporter(board), []
    for event in events:
        reporter(event)
        assert board.status.progress is not None
        found.append(board.status.progress.steps)
    return found


def test_steps_of_the_status_grow_with_work_and_with_nothing_else() -> None:
    store = "https://minio:9000 does not answer (connection refused), attempt 2 of 5"
    steps = steps_of(
        Progress("start"),
        Progress("plan"),
        Progress("infer", 1, 3, 0.1, steps=70),
        Progress("infer", 1, 3, 0.1, steps=71),
        Progress("infer", 1, 3, 0.1, steps=71, message=store),
        Progress("infer", 1, 3, 0.1, steps=71),
        Progress("infer", 1, 3, 0.2, steps=71),
        Progress("infer", 2, 3, 0.2, steps=71),
    )
    assert steps == [1, 2, 3, 4, 4, 4, 5, 6]


def test_a_worker_of_an_earlier_release_counts_no_steps() -> None:
    text = '{"stage": "infer", "percent": 7, "lastUpdateTime": "2026-11-21T04:19:22Z"}'
    found = ProgressReport.parse(text)
    assert found is not None
    assert found.steps == 0


def test_days_of_progress_take_little_room(tmp_path: Path) -> None:
    folder, seen = RunFolder(tmp_path), list[int]()
    with folder.following(lambda event: seen.append(event.steps)):
        for steps in range(20_000):
            folder.append_progress(Progress("infer", 1, 3, 0.5, steps=steps))
    assert (tmp_path / "progress.jsonl").stat().st_size < 2 << 20
    assert seen == sorted(seen)
    assert seen[-1] == 19_999
    assert folder.last_stage() == "infer"
