"""A memory control group for a command: page cache counts in it, as in a container."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS

_ROOT = Path("/sys/fs/cgroup")
_V2 = (_ROOT / "cgroup.controllers").exists()
_PARENT = _ROOT if _V2 else _ROOT / "memory"
LIMITS = os.geteuid() == 0 and os.access(_PARENT, os.W_OK)
"""Whether this process may make one."""


def run_limited(limit: int | None, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a Python command in a new group with so many bytes; None: without a limit."""
    if limit is None:
        return _run(command)
    group = _PARENT / f"embertide-test-{os.getpid()}"
    group.mkdir()
    try:
        name = "memory.max" if _V2 else "memory.limit_in_bytes"
        (group / name).write_text(str(limit))
        # A shell enters the group and becomes the command: this process has threads.
        enter = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
        return _run(["sh", "-c", enter, "sh", sys.executable, *command], whole=True)
    finally:
        # Helpers of the command notice its end a moment later.
        until = time.monotonic() + WAIT_SECONDS
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        group.rmdir()


def _run(command: Sequence[str], *, whole: bool = False) -> subprocess.CompletedProcess[str]:
    argv = list(command) if whole else [sys.executable, *command]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
