"""Whatever ends a run, it ends at once, says why, and leaves no process and no half version."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands import Done, Published, Running, await_nobody, is_worker, members
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS

pytestmark = pytest.mark.distributed

STAGES = ["features", "ingest", "csr", "infer", "publish"]
WORKER_FAILED, INTERRUPTED = 8, 130
NEW, FORKED = "new", "forked"


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose stages last long enough to be hit, with a version published."""
    folder = tmp_path_factory.mktemp("big")
    made = Running(folder, "synth", str(folder / "job"), "--scale", "16", "--quiet")
    assert made.done(60).code == 0
    shutil.rmtree(made.scratch)
    words = ("run", str(folder / "job" / "job.yaml"), "--grid", "1x1", "--quiet")
    first = Running(folder, *words, new=True)
    done = first.done(120)
    assert (done.code, done.err) == (0, "")
    assert not any(first.scratch.iterdir())
    return folder / "job"


Ready = Callable[[Running, Path], None]


class Catching:
    """Runs that are met at a moment; ``published`` is what there was before."""

    def __init__(self, big: Path, folder: Path) -> None:
        self._big, self._folder = big, folder
        self.begun: list[Running] = []

    def __call__(self, ready: Ready, *, new: bool = False) -> tuple[Running, Published]:
        """A run whose workers, if it has any yet, stand still where it is ``ready``.

        On a busy machine it may be over before we look; then it is another run.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            published = Published(self._big / "embeddings")
            words = ("run", str(self._big / "job.yaml"), "--force", "--grid", "2x2", "--json")
            run = Running(self._folder, *words, new=new)
            self.begun.append(run)
            try:
                ready(run, self._big)
                stop_workers(run)
            except AssertionError:
                if run.process.wait() != 0:
                    raise
                continue
            if published.is_newest():
                return run, published
            run.process.kill()
            run.process.wait()
            await_nobody(run.process.pid)
        raise AssertionError("every run was over too soon")


@pytest.fixture
def catch(big: Path, tmp_path: Path) -> Iterator[Catching]:
    catching = Catching(big, tmp_path)
    yield catching
    for run in catching.begun:
        run.process.kill()  # where the test failed
        run.process.wait()


def stop_workers(run: Running) -> None:
    for process in members(run.process.pid):
        if is_worker(process):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)


def _in_stage(stage: str, layer: int = 0) -> Ready:
    def ready(run: Running, _big: Path) -> None:
        run.await_stage(stage, layer)
        if stage not in ("start", "plan"):
            run.workers(4)

    return ready


def _writing(run: Running, big: Path) -> None:
    """A part is under way, still hidden."""
    run.await_stage("infer")
    run.await_file(big / "embeddings", "versions/*/.*.part")


def _check_end(run: Running, done: Done, published: Published, began: float) -> None:
    """The end of every failed run; ``began`` is when it was hit, on the monotonic clock."""
    assert time.monotonic() - began < SOON_SECONDS
    error = done.events[-1]
    assert error["event"] == "error"
    assert error["exit_code"] == done.code
    assert error["message"] == done.message
    assert error["permanent"] is False
    published.check_untouched()
    assert not any(run.scratch.iterdir())


@pytest.mark.parametrize(
    ("rank", "place", "ready", "stage"),
    [
        (1, "graph 0, feature 1", _in_stage("features"), "features"),
        pytest.param(2, "graph 1, feature 0", _in_stage("csr"), "csr", marks=pytest.mark.tier(1)),
        (3, "graph 1, feature 1", _in_stage("infer", 2), "infer"),
        (0, "graph 0, feature 0", _writing, "publish"),
    ],
)
def test_a_killed_worker_ends_the_run(
    rank: int,
    place: str,
    ready: Ready,
    stage: str,
    catch: Catching,
) -> None:
    run, published = catch(ready)
    os.kill(run.workers(4)[rank], signal.SIGKILL)
    run.go_on()
    began = time.monotonic()
    done = run.done(SOON_SECONDS)
    assert done.code == WORKER_FAILED
    start = f"worker {rank} of 4 ({place}) was killed by SIGKILL during "
    assert done.message.startswith(start)
    # Progress may have gone on while the signal was on its way.
    assert done.message.removeprefix(start).split(";")[0] in STAGES[STAGES.index(stage) :]
    assert done.message.endswith("Nothing was published, the previous version is intact.")
    _check_end(run, done, published, began)


def test_a_killed_launcher_ends_the_run(catch: Catching) -> None:
    run, published = catch(_in_stage("infer"))
    (launcher,) = {psutil.Process(worker).ppid() for worker in run.workers(4)}
    os.kill(launcher, signal.SIGKILL)
    run.go_on()
    began = time.monotonic()
    done = run.done(SOON_SECONDS)
    assert done.code == WORKER_FAILED
    assert done.message.startswith("the launch process was killed by SIGKILL. Nothing was pub")
    _check_end(run, done, published, began)


def test_the_process_that_waits_has_no_torch(catch: Catching) -> None:
    run, _ = catch(_in_stage("infer"), new=True)
    assert "libtorch" not in Path(f"/proc/{run.process.pid}/maps").read_text()
    assert "libtorch" in Path(f"/proc/{run.workers(4)[0]}/maps").read_text()
    run.process.send_signal(signal.SIGTERM)
    assert run.done(SOON_SECONDS).code == INTERRUPTED


def test_a_native_crash_is_named(catch: Catching) -> None:
    run, published = catch(_in_stage("infer", 1))
    # To its main thread, as if that had failed: a signal to the process may find one of torch's.
    worker = run.workers(4)[3]
    assert ctypes.CDLL(None).tgkill(worker, worker, signal.SIGSEGV) == 0
    run.go_on()
    began = time.monotonic()
    done = run.done(SOON_SECONDS)
    assert done.code == WORKER_FAILED
    assert "worker 3 of 4 (graph 1, feature 1) was killed by SIGSEGV" in done.message
    words = done.message.partition("its last output:\n")[2].splitlines()
    assert words[0] == "  Fatal Python error: Segmentation fault"
    # The innermost call, in our code or a library's.
    assert words[2].startswith('    File "')
    _check_end(run, done, published, began)


def _group(run: Running, number: int) -> None:
    """As a terminal does with Ctrl-C."""
    os.killpg(run.process.pid, number)


def _launcher(run: Running, number: int) -> None:
    """As a supervisor does."""
    run.process.send_signal(number)


@pytest.mark.parametrize(
    ("start", "send", "number", "ready"),
    [
        (NEW, _group, signal.SIGINT, _in_stage("start")),
        (NEW, _group, signal.SIGINT, _in_stage("plan")),
        (FORKED, _group, signal.SIGINT, _in_stage("infer")),
        (FORKED, _group, signal.SIGTERM, _in_stage("csr")),
        (NEW, _launcher, signal.SIGTERM, _in_stage("plan")),
        (FORKED, _launcher, signal.SIGTERM, _in_stage("ingest")),
        (FORKED, _launcher, signal.SIGINT, _writing),
        (FORKED, _launcher, signal.SIGHUP, _in_stage("features")),
    ],
)
def test_a_signal_stops_everything(
    start: str,
    send: Callable[[Running, int], None],
    number: signal.Signals,
    ready: Ready,
    catch: Catching,
) -> None:
    run, published = catch(ready, new=start == NEW)
    send(run, number)
    began = time.monotonic()
    done = run.done(SOON_SECONDS)
    assert done.code == INTERRUPTED
    assert done.message.startswith(f"stopped by {number.name}")
    _check_end(run, done, published, began)


def test_workers_do_not_outlive_the_launcher(catch: Catching) -> None:
    run, published = catch(_in_stage("infer"))
    run.process.kill()
    run.go_on()
    run.process.wait()
    await_nobody(run.process.pid)
    # They go on for a moment, on a busy machine until they write their parts.
    published.check_beside()


def test_a_killed_launcher_leaves_parts_that_nobody_reads(catch: Catching) -> None:
    run, published = catch(_writing)
    run.process.kill()
    run.process.wait()
    # Also workers that stand still.
    await_nobody(run.process.pid)
    published.check_beside()
    with pytest.raises(AssertionError):
        published.check_untouched()
