"""The last lines of a container that failed: what it leaves, and what the status keeps of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embertide.pod import logs
from embertide.pod.endings import write_ending
from embertide.pod.redact import redact
from embertide.spec.naming import ENV_CREDENTIALS_FOLDER, ENV_STORES_FOLDER
from embertide.spec.reports import Ending
from embertide.spec.status import JobStatus
from tests.support.operator_world import World

CRASH = Ending(reason="Internal", message="KeyError: 7", exit_code=1, rank=1)
LINES = [f"2026-11-21T12:00:{i:02}Z INFO line {i}" for i in range(60)]
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=="


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A container's log; its handlers are removed again."""
    found = logging.getLogger("embertide")
    before, propagate, level = list(found.handlers), found.propagate, found.level
    logs.log_to_stderr()
    logs._last.clear()
    yield found
    found.handlers[:], found.propagate = before, propagate
    found.setLevel(level)


def failed(ending: Ending | None = None, **more: Any) -> World:
    """A job whose worker 1 ended so."""
    world = World(backoffLimit=0)
    world.reconcile()
    world.reconcile(1, pods=world.pods(world.running(), world.ended(ending, **more)))
    assert JobStatus.model_validate(world.status).to_object() == world.status
    return world


def test_an_ending_has_the_last_lines(log: logging.Logger, tmp_path: Path) -> None:
    for i in range(60):
        log.info("line %d", i)
    try:
        raise KeyError(7)
    except KeyError:
        log.exception("unexpected")
    write_ending(tmp_path / "log", CRASH)
    left = Ending.parse((tmp_path / "log").read_text())
    assert left is not None
    lines = left.log.splitlines()
    assert len(lines) == 40
    assert lines[0].endswith("INFO line 25")
    assert lines[-1] == "KeyError: 7"
    assert lines[-4] == "Traceback (most recent call last):"


@pytest.mark.parametrize("letter", ["x", "é", "𝕏", '"'])
def test_the_oldest_lines_give_way_before_the_message(letter: str) -> None:
    log = "\n".join(f"{i} {letter * 300}" for i in range(40))
    text = CRASH.model_copy(update={"log": log}).to_text()
    assert len(text.encode()) <= 4000
    left = Ending.parse(text)
    assert left is not None
    assert left.message == CRASH.message
    assert left.log
    assert log.endswith(left.log)


def test_credentials_are_taken_out(
    log: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text(SECRET + "\n")
    monkeypatch.setenv(ENV_CREDENTIALS_FOLDER, str(tmp_path))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-a-session")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "short")
    log.error("signed with %s and token-of-a-session, short", SECRET)
    message = f"the store says {SECRET}"
    write_ending(tmp_path / "log", CRASH.model_copy(update={"message": message}))
    text = (tmp_path / "log").read_text()
    assert json.loads(text)["message"] == "the store says [redacted]"
    assert logs.last_lines().endswith("signed with [redacted] and [redacted], short")
    assert SECRET not in text


def test_credentials_of_each_store_are_taken_out(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "AWS_SECRET_ACCESS_KEY").write_text(SECRET + "\n")
    assert redact(f"with {SECRET}", {ENV_STORES_FOLDER: str(tmp_path)}) == "with [redacted]"


def test_without_credentials_nothing_changes(tmp_path: Path) -> None:
    assert redact("as it is", {ENV_CREDENTIALS_FOLDER: str(tmp_path)}) == "as it is"


def test_the_status_keeps_them_after_the_pods() -> None:
    world = failed(CRASH.model_copy(update={"log": "\n".join(LINES[:5])}))
    world.reconcile(5, pods=[])
    assert world.status["phase"] == "Failed"
    assert world.status["failureLog"].splitlines() == LINES[:5]


def test_of_a_container_that_left_no_ending_the_kubelet_has_some() -> None:
    world = failed(exitCode=137, reason="OOMKilled", message="\n".join(LINES[:3]) + "\n")
    assert world.status["failureLog"].splitlines() == LINES[:3]
    assert "line" not in world.status["lastFailure"]["message"]
    other = failed(exitCode=2, message="\n".join(LINES[:3]))
    assert other.status["lastFailure"]["message"] == f"worker 1 exited with code 2: {LINES[2]}"


def test_the_status_is_bounded_and_for_terminals() -> None:
    lines = failed(exitCode=2, message="\n".join(LINES)).status["failureLog"].splitlines()
    assert lines == LINES[-40:]
    long = failed(exitCode=2, message="\n".join(f"{i} " + "é" * 200 for i in range(30)))
    assert len(long.status["failureLog"].encode()) <= 4096
    assert long.status["failureLog"].endswith("29 " + "é" * 200)
    obeyed = failed(exitCode=2, message="a\x1b[2Jb\tc")
    assert obeyed.status["failureLog"] == "a[2Jb  c"


def test_a_deadline_keeps_the_log_of_rank_0() -> None:
    """No container ends by itself: the lines are in what rank 0 answered last."""
    for name in ("active", "progress"):
        world = World(**{f"{name}DeadlineSeconds": 60}, backoffLimit=0)
        world.reconcile()
        pods = world.pods(world.running(), world.running())
        answer = world.report().model_copy(update={"log": "\n".join(LINES) + "\x1b"})
        world.reconcile(1, pods=pods, report=answer)
        assert "failureLog" not in world.status
        world.reconcile(61, report=answer)
        reason = {"active": "DeadlineExceeded", "progress": "ProgressDeadlineExceeded"}[name]
        assert world.status["lastFailure"]["reason"] == reason
        assert world.status["failureLog"].splitlines() == LINES[-40:]
        assert JobStatus.model_validate(world.status).to_object() == world.status


def test_workers_that_never_all_ran_keep_it_too() -> None:
    world = World(preRunningDeadlineSeconds=30)
    world.reconcile()
    answer = world.report(stage="start", percent=0).model_copy(update={"log": LINES[0]})
    world.reconcile(31, pods=world.pods(world.running(), {}), report=answer)
    assert world.status["lastFailure"]["reason"] == "PreRunningDeadlineExceeded"
    assert world.status["failureLog"] == LINES[0]


def test_an_attempt_without_a_log_shows_none_of_the_one_before() -> None:
    world = World(backoffLimit=3)
    world.reconcile()
    ending = CRASH.model_copy(update={"log": "line"})
    world.reconcile(1, pods=world.pods(world.running(), world.ended(ending)))
    assert world.status["failureLog"] == "line"
    for _ in range(20):
        world.reconcile(2, pods=[])
    pods = world.pods(world.running(), world.running())
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.reconcile(1, pods=pods)
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"
    assert "failureLog" not in world.status


def test_the_planners_log_is_kept_and_its_disruption_is_still_one() -> None:
    world = World(workers={"grid": "auto"}, backoffLimit=0)
    world.reconcile()
    end = world.ended(None, exitCode=143, message=LINES[0])
    (pod,) = world.pods({"state": end["lastState"]})
    pod["metadata"]["labels"]["embertide.dev/role"] = "planner"
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    world.reconcile(1, pods=[pod])
    assert world.status["lastFailure"]["reason"] == "WorkerDisrupted"

    other = World(workers={"grid": "auto"}, backoffLimit=0)
    other.reconcile()
    end = other.ended(CRASH.model_copy(update={"log": LINES[1]}))
    (pod,) = other.pods({"state": end["lastState"]})
    pod["metadata"]["labels"]["embertide.dev/role"] = "planner"
    other.reconcile(1, pods=[pod])
    assert other.status["failureLog"] == LINES[1]
