"""Processes of pods as this machine sees them: killed, or stopped in a stage for a while.

A fast machine is done with a stage, or the whole job, before kubectl has started.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from embertide.spec import naming

_POLL_SECONDS = 0.005
_FIND_SECONDS = 0.1
_MAIN = "embertide.pod work"
_PAUSE = "/catatonit -P"


class Held:
    """An attempt's worker processes, which stand still."""

    def __init__(self, progress: Callable[[], list[str]], workers: list[int]) -> None:
        """Stop them.

        Args:
            progress: the stages that the worker that counts has reported.
        """
        self._progress = progress
        # By handle: when they have ended, somebody else may have their numbers.
        self._handles = [os.pidfd_open(worker) for worker in workers]
        self._send(signal.SIGSTOP)

    @property
    def stage(self) -> str:
        """Where they stand: stages of some milliseconds may be over."""
        return self._progress()[-1]

    def go_on_to(self, stage: str, seconds: float = 60.0) -> None:
        """Let them work until the one that counts is in a later stage; there they stand again."""
        self._send(signal.SIGCONT)
        deadline = time.monotonic() + seconds
        while stage not in self._progress():
            assert time.monotonic() < deadline, f"no worker came to {stage}"
            time.sleep(_POLL_SECONDS)
        self._send(signal.SIGSTOP)

    def go_on_for(self, seconds: float) -> None:
        """Let them work for a moment."""
        self._send(signal.SIGCONT)
        time.sleep(seconds)
        self._send(signal.SIGSTOP)

    def release(self) -> None:
        """Let them work."""
        self._send(signal.SIGCONT)
        for handle in self._handles:
            os.close(handle)

    def _send(self, number: int) -> None:
        for handle in self._handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)


@contextlib.contextmanager
def standing_still(
    uids: Callable[[], list[str]], attempt: int, rank: int, stage: str, seconds: float
) -> Iterator[Held]:
    """Stop all worker processes as soon as one of them is in a stage; they go on at the end.

    Args:
        uids: of the attempt's pods by rank; asked again until all have a container.
        rank: whose stage counts.
    """
    deadline = time.monotonic() + seconds
    mains: list[int] = []
    workers: list[int] = []
    while not workers or stage not in _stages(mains[rank], attempt):
        assert time.monotonic() < deadline, f"worker {rank} did not come to {stage}"
        if mains and all(Path(f"/proc/{main}").exists() for main in mains):
            workers = workers or _every(_workers(main) for main in mains)
            time.sleep(_POLL_SECONDS)
        else:
            time.sleep(_FIND_SECONDS)
            mains, workers = _every(find_processes(uid, _MAIN) for uid in uids()), []
    held = Held(functools.partial(_stages, mains[rank], attempt), workers)
    try:
        yield held
    finally:
        held.release()


def _every(found: Iterable[Iterator[int]]) -> list[int]:
    """The first of each; [] where one has none."""
    first = [next(processes, None) for processes in found]
    return [process for process in first if process is not None] if all(first) else []


def _workers(process: int) -> Iterator[int]:
    """The worker process among a process's descendants, once it is there."""
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                if Path(f"/proc/{child}/comm").read_text().startswith("embertide-"):
                    yield child
                yield from _workers(child)


def _stages(main: int, attempt: int) -> list[str]:
    """The stages that a container's worker has reported, in the container's files."""
    folder = Path(f"/proc/{main}/root{naming.SCRATCH_FOLDER}/attempt-{attempt}")
    try:
        lines = (folder / "progress.jsonl").read_text().splitlines(keepends=True)
    except OSError:
        return []
    return [json.loads(line)["stage"] for line in lines if line.endswith("\n")]


def find_processes(pod_uid: str, pattern: str) -> Iterator[int]:
    """Processes of a pod with ``pattern`` in their name or command line, but for pause.

    Their control groups name the pod. Kubelet writes dashes as underscores with systemd only.
    """
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # processes end while we look
            if folder.name.isdigit() and pod_uid in (folder / "cgroup").read_text():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                name = (folder / "comm").read_text()
                if pattern in f"{name} {command}" and not command.startswith(_PAUSE):
                    yield int(folder.name)


def kill_processes(pod_uid: str, pattern: str, number: int) -> int:
    """Send a signal to them; how many there were."""
    found = list(find_processes(pod_uid, pattern))
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    return len(found)
