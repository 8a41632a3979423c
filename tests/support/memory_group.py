"""A memory control group for a command: page cache counts in it, as in a container."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS

_ROOT = Path("/sys/fs/cgroup")
_V2 = (_ROOT / "cgroup.controllers").exists()
_PARENT = _ROOT if _V2 else _ROOT / "memory"
LIMITS = os.geteuid() == 0 and os.access(_PARENT, os.W_OK)
"""Whether this process may make one."""


@dataclass(frozen=True)
class MemoryGroup:
    """A group that commands can enter."""

    folder: Path

    @property
    def members(self) -> Path:
        """The file that a process writes its number to when it enters the group."""
        return self.folder / "cgroup.procs"

    def entering(self, command: Sequence[str]) -> list[str]:
        """A command that enters the group first; this process may have threads."""
        enter = f'echo $$ > "{self.members}" && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    @property
    def peak_bytes(self) -> int:
        """The most that its processes had at a time, page cache included; 0 where no one counts."""
        counted = self.folder / ("memory.peak" if _V2 else "memory.max_usage_in_bytes")
        return int(counted.read_text()) if counted.exists() else 0


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """A new group with so many bytes, which is gone at the end."""
    folder = _PARENT / f"embertide-test-{os.getpid()}"
    folder.mkdir()
    try:
        name = "memory.max" if _V2 else "memory.limit_in_bytes"
        (folder / name).write_text(str(limit))
        yield MemoryGroup(folder)
    finally:
        # Helpers of a command notice its end a moment later.
        until = time.monotonic() + WAIT_SECONDS
        while (folder / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        folder.rmdir()


def run_limited(limit: int | None, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a Python command in a new group with so many bytes; None: without a limit."""
    argv = [sys.executable, *command]
    if limit is None:
        return _run(argv)
    with memory_group(limit) as group:
        return _run(group.entering(argv))


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
