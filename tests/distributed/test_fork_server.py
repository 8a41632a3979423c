"""Calls of the fork server: what they answer, and that nothing of them stays."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from embertide.errors import EmbertideError, InputError, ManifestError, ProcessDied
from embertide.launch.bootstrap.fork_server import HUGE_PAGES, call, call_alone, fork_server
from embertide.launch.bootstrap.process_tree import die_with_requester
from tests.support.patience import SOON_SECONDS

pytestmark = pytest.mark.distributed


@pytest.fixture(autouse=True)
def server() -> Iterator[None]:
    with fork_server("embertide.launch.worker"):
        yield


class Interruption(BaseException):
    """What a signal raises in a process that waits."""


def _double(value: int) -> int:
    return 2 * value


def _raise(error: Exception) -> None:
    raise error


def _start_and_sleep(note: Path) -> None:
    """Start a process, as launchers do, tell both ids and wait."""
    child = multiprocessing.get_context("fork").Process(target=_work)
    child.start()
    die_with_requester()
    note.with_suffix(".draft").write_text(f"{os.getpid()} {child.pid}")
    note.with_suffix(".draft").rename(note)
    time.sleep(60)


def _work() -> None:
    die_with_requester()
    time.sleep(60)


def _processes(note: Path) -> list[int]:
    while not note.exists():
        time.sleep(0.01)
    return [int(word) for word in note.read_text().split()]


def _alive(process: int) -> bool:
    return psutil.pid_exists(process) and psutil.Process(process).status() != "zombie"


def test_answers_come_from_another_process() -> None:
    assert call(_double, 21) == 42
    assert call(os.getpid) != os.getpid()


@pytest.mark.parametrize("ask", [call, call_alone])
def test_a_call_has_the_variables_that_its_caller_has_by_then(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "night")
    assert ask(os.getenv, "AWS_PROFILE") == "night"
    monkeypatch.delenv("AWS_PROFILE")
    assert ask(os.getenv, "AWS_PROFILE") is None
    monkeypatch.setenv(HUGE_PAGES, "0")
    assert ask(os.getenv, HUGE_PAGES) == "0"
    monkeypatch.delenv(HUGE_PAGES)
    # A server that has imported what runs need has set it.
    assert ask(os.getenv, HUGE_PAGES) in (None, "1")


@pytest.mark.parametrize(
    "error",
    [
        InputError("part 3, row 7"),
        ManifestError([("spec.model", "is missing")], "job.yaml"),
        ProcessDied("the launch process was killed by SIGKILL"),
    ],
)
def test_errors_arrive_as_they_were(error: EmbertideError) -> None:
    with pytest.raises(type(error)) as raised:
        call(_raise, error)
    assert raised.value.to_json() == error.to_json()


def test_unexpected_errors_say_where_they_come_from() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        call(_raise, ZeroDivisionError("by zero"))
    assert "in _raise" in "".join(raised.value.__notes__)


def test_a_process_that_is_killed_is_told_and_takes_its_own_along(tmp_path: Path) -> None:
    note = tmp_path / "note"
    killer = threading.Thread(target=lambda: os.kill(_processes(note)[0], signal.SIGKILL))
    killer.start()
    with pytest.raises(ProcessDied, match="the _start_and_sleep process was killed by SIGKILL"):
        call_alone(_start_and_sleep, note)
    killer.join()
    deadline = time.monotonic() + SOON_SECONDS
    while any(_alive(process) for process in _processes(note)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupted_call_leaves_no_process(tmp_path: Path) -> None:
    note = tmp_path / "note"

    def interrupt(_number: int, _frame: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGUSR1, interrupt)

    def send() -> None:
        _processes(note)
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Interruption):
            call_alone(_start_and_sleep, note)
    finally:
        signal.signal(signal.SIGUSR1, before)
    sender.join()
    assert not any(_alive(process) for process in _processes(note))


def test_after_an_error_the_next_server_is_a_new_one() -> None:
    # In other processes, since this one has the fixture's server, which is kept.
    for _ in range(2):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(_call_after_an_error).result() == 4


def _call_after_an_error() -> int:
    with suppress(InterruptedError), fork_server("embertide.launch.worker"):
        call(_double, 1)
        raise InterruptedError
    with fork_server("embertide.launch.worker"):
        return call(_double, 2)
