"""How workers are started: while nothing else runs, and to the end in every case."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

import embertide.launch.bootstrap.start
from embertide.launch.bootstrap.elastic import supervise
from embertide.launch.bootstrap.fork_server import PRELOAD, call_alone, fork_server
from embertide.launch.bootstrap.launcher import launch
from embertide.launch.bootstrap.local_workers import supervise_local
from embertide.launch.bootstrap.worker_processes import start_workers
from embertide.launch.failure import Cause, Exit
from embertide.launch.local import run_job
from embertide.launch.settings import ONCE, Rendezvous, WorkerSettings
from embertide.spec.grid import GridShape
from tests.support.job_files import WIDTH, write_job
from tests.support.patience import SOON_SECONDS
from tests.support.world import make_features, make_graph

pytestmark = pytest.mark.distributed

LONG_SECONDS = 600
"""What workers sleep; nothing that ends them in time waits for that."""


@pytest.fixture
def server() -> Iterator[None]:
    with fork_server(PRELOAD):
        yield


def _launch_and_note_forks(settings: WorkerSettings, rendezvous: Rendezvous | None) -> Cause | None:
    """Like the launcher, and writes down how many threads there are whenever it forks."""
    note = Path(settings.run_folder).parent / "forks"

    def look() -> None:
        with note.open("a") as file:
            file.write(f"{psutil.Process().num_threads()}\n")

    os.register_at_fork(before=look)
    return launch(settings, rendezvous)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary folder whose path is short enough for sockets in it, whatever pytest's is."""
    with tempfile.TemporaryDirectory(prefix="em-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.usefixtures("server")  # whose sockets are not to be in a folder that goes
def test_workers_are_forked_while_nothing_else_runs(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one of some hundred runs stands still: a worker waits for a lock nobody holds."""
    files = write_job(tmp_path / "job", make_graph(), make_features(WIDTH))
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(embertide.launch.bootstrap.start, "launch", _launch_and_note_forks)
    run_job(files.job, grid=GridShape.of(2, 2), threads=1)
    assert (scratch / "forks").read_text().split() == ["1"] * 4


def test_beside_a_thread_nothing_is_forked() -> None:
    stay = threading.Event()
    thread = threading.Thread(target=stay.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="before the launcher has threads"):
            start_workers(1, time.sleep, (LONG_SECONDS,), None)
    finally:
        stay.set()
        thread.join()


def _sleep_until_killed(killed: str) -> tuple[list[Exit], list[int]]:
    """Three sleeping workers: one is killed, one stands still. Returns the ends, and all ids."""
    workers = start_workers(3, time.sleep, (LONG_SECONDS,), None)
    ids = [worker.process.pid or 0 for worker in workers]
    os.kill(ids[0], signal.SIGSTOP)
    if killed == "before":
        workers[1].process.kill()
        workers[1].process.join()
    else:
        threading.Timer(1, workers[1].process.kill).start()
    return supervise_local(workers), ids


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("killed", ["before", "later"])
def test_a_worker_that_dies_ends_the_others(killed: str) -> None:
    """Be it before it is told its place or later; be the others able to answer or not."""
    began = time.monotonic()
    exits, ids = call_alone(_sleep_until_killed, killed)
    assert exits == [Exit(1, -signal.SIGKILL, 1)]
    assert not any(psutil.pid_exists(number) for number in ids)
    assert time.monotonic() - began < SOON_SECONDS


def _meet_nobody() -> list[int]:
    """Ids of the worker's process and of those that stay when a second launcher does not come."""
    workers = start_workers(1, time.sleep, (LONG_SECONDS,), None)
    options = {"rank": 0, "is_host": True, "join_seconds": 2, "heartbeat_seconds": 1}
    rendezvous = Rendezvous(
        run_id="test", launchers=2, address="127.0.0.1", backend=ONCE, options=options
    )
    with pytest.raises(RendezvousTimeoutError):
        supervise(workers, rendezvous, 0)
    return [child.pid for child in psutil.Process().children() if child.status() != "zombie"]


@pytest.mark.usefixtures("server")
def test_a_rendezvous_that_fails_leaves_no_worker() -> None:
    assert call_alone(_meet_nobody) == []
