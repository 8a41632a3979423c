"""Running one command from cold files, and what it took: seconds, and memory of all processes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import PIPE, Popen

import psutil

from benchmarks.support.rounds import ROOT, Load
from embertide.launch.bootstrap.process_tree import adopt_orphans

_EVERY_SECONDS, _EVERY_SECONDS_OF_CPU = 0.1, 0.05
_PAUSES = 20
"""Times what a sample took that no other follows: for memory the kernel walks all pages."""


@dataclass(frozen=True)
class Took:
    """A command that ended well.

    Attributes:
        wall: seconds from its start to its end.
        user, system: CPU seconds of all its processes, and of the kernel for them.
        others: cores kept busy by processes that are neither the command's nor ours.
        peak_bytes: largest sum of what its processes hold, shared pages counted once; 0 where
            it was not watched.
        cpu: CPU seconds of every process that was seen, by "name/process id".
    """

    stdout: str
    wall: float
    user: float
    system: float
    others: float
    peak_bytes: int
    cpu: dict[str, float]


def run(
    command: list[str],
    *,
    watch: bool = False,
    memory: bool = True,
    env: Mapping[str, str] | None = None,
) -> Took:
    """Run a command from the repository's root.

    Args:
        watch: sample CPU seconds and, with ``memory``, memory of its processes, which takes time
            from it.
        env: variables beside our own.

    Raises:
        SystemExit: the command failed; with its exit status and the end of what it wrote.
    """
    load, start, before = Load(), time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    with _orphans_adopted():
        process = Popen(
            command,
            cwd=ROOT,
            env=os.environ | dict(env or {}),
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            process_group=0,
        )
        watcher = _Watcher(process.pid, memory=memory) if watch else None
        try:
            stdout, stderr = process.communicate()
            wall = time.perf_counter() - start
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            peak, cpu = watcher.stop() if watcher else (0, {})
        _reap(process.pid)
    if process.returncode:
        how = f"failed, exit status {process.returncode}"
        sys.exit(f"{' '.join(command)}\n{how}:\n{(stderr + stdout)[-3000:]}")
    after = getrusage(RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Took(stdout, wall, user, system, load.others(), peak, cpu)


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    """Have processes that outlive their parent become children of this one."""
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(False)


def _reap(group: int) -> None:
    """Wait for what a command leaves, so that its CPU seconds are ours.

    A fork server ends by itself just after the command that it served.
    """
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


class _Watcher:
    """Samples a process and its descendants until told to stop."""

    def __init__(self, pid: int, *, memory: bool) -> None:
        self._memory = memory
        self._root = psutil.Process(pid)
        self._peak = 0
        self._cpu: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> tuple[int, dict[str, float]]:
        """Peak bytes, and CPU seconds by process name and id."""
        self._over.set()
        self._thread.join()
        return self._peak, self._cpu

    def _watch(self) -> None:
        pause = every = _EVERY_SECONDS if self._memory else _EVERY_SECONDS_OF_CPU
        while not self._over.wait(pause):
            # Of this thread's own time: a process that makes pages lets nobody look meanwhile.
            begin = time.thread_time()
            with suppress(psutil.NoSuchProcess):
                family = [self._root, *self._root.children(recursive=True)]
                self._peak = max(self._peak, sum(map(self._look, family)))
            pause = max(every, _PAUSES * (time.thread_time() - begin))

    def _look(self, process: psutil.Process) -> int:
        """Bytes of a process now; remembers its CPU seconds."""
        with suppress(psutil.NoSuchProcess, OSError, ValueError):
            times = process.cpu_times()
            self._cpu[f"{process.name()}/{process.pid}"] = times.user + times.system
            if not self._memory:
                return 0
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            line = next(text for text in rollup.splitlines() if text.startswith("Pss:"))
            return int(line.split()[1]) << 10
        return 0


def drop_cached(folder: Path) -> None:
    """Ask the kernel to forget the pages of all files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
