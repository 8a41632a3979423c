"""Commands as forks of a process that has imported everything, where their start is not the point.

A :class:`ForkedProcess` is to be used as a ``subprocess.Popen``. What differs from a command that
a shell starts: its own process has torch in memory, and its fork server does not import it again.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT


class ForkedProcess:
    """``python -m PROGRAM ARGV...`` in a session of its own, with files as its output.

    Args:
        program: "embertide", "embertide.pod" or a module.
        folder: where it runs; default: where we do.
        file_bytes: limits the size of every file it writes.
        imported: modules beside Embertide's that its server has imported, for those that name the
            same; there every process has one thread for torch.
    """

    def __init__(
        self,
        program: str,
        *argv: str,
        stdout: Path,
        stderr: Path,
        env: Mapping[str, str],
        folder: Path | None = None,
        file_bytes: int | None = None,
        imported: tuple[str, ...] = (),
    ) -> None:
        self.returncode: int | None = None
        self._imported = imported
        self.pid: int = _ask(
            imported,
            program=program,
            argv=argv,
            stdout=str(stdout),
            stderr=str(stderr),
            env=dict(env),
            folder=str(folder or Path.cwd()),
            file_bytes=file_bytes,
        )
        self._handle = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it ends."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._handle, select.POLLIN)
            if waiting.poll(None if seconds is None else seconds * 1000):
                self.returncode = _ask(self._imported, ended=self.pid)
                os.close(self._handle)
        return self.returncode


@functools.cache
def _server(imported: tuple[str, ...]) -> subprocess.Popen[str]:
    """One for all of this process's tests that name the same imports."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.command_server", *imported],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # Read as torch is imported.
        env=os.environ | ({"OMP_NUM_THREADS": "1"} if imported else {}),
    )
    atexit.register(server.communicate)
    atexit.register(server.kill)
    return server


def _ask(imported: tuple[str, ...], /, **request: Any) -> int:
    server = _server(imported)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer = server.stdout.readline()
    assert answer, "the server of commands has ended"
    return int(json.loads(answer))
