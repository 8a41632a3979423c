"""The benchmarks' commands, forked from one process that has imported what all of them import."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support import commands
from tests.support.forked_process import ForkedProcess
from tests.support.paths import ROOT

IMPORTED = ("tests.support.peer_imports",)


class ForkedCommand:
    """``python -m MODULE ARGUMENTS...``, to be used as ``subprocess.Popen``."""

    def __init__(self, command: list[str], *, env: dict[str, str], **_pipes: Any) -> None:
        module, *words = command[command.index("-m") + 1 :]
        self._folder = tempfile.TemporaryDirectory(prefix="em-")
        self._files = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        self._process = ForkedProcess(
            module,
            *words,
            stdout=self._files[0],
            stderr=self._files[1],
            env=env,
            folder=ROOT,
            imported=IMPORTED,
        )
        self.pid = self._process.pid
        self.returncode: int | None = None

    def communicate(self) -> tuple[str, str]:
        """What it wrote to stdout and to stderr, when it has ended."""
        self.returncode = self._process.wait()
        out, err = (file.read_text() for file in self._files)
        self._folder.cleanup()
        return out, err

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.poll()

    def terminate(self) -> None:
        """Unless it has ended."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code, when it ends."""
        return self._process.wait()


class Benchmark:
    """Runs a benchmark; what it kept."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, monkeypatch
        monkeypatch.setattr(commands, "Popen", ForkedCommand)

    def here(self, main: Any, *words: str) -> dict[str, Any]:
        """One that only starts commands, in this process."""
        out = self._folder / "out.json"
        self._patch.setattr(sys, "argv", ["benchmark", *words, "--out", str(out)])
        main()
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    def apart(self, name: str, *words: str) -> dict[str, Any]:
        """One that computes, in a process of its own."""
        out = self._folder / "out.json"
        command = ["-m", f"benchmarks.{name}", *words, "--out", str(out)]
        process = ForkedCommand(command, env=dict(os.environ))
        _, err = process.communicate()
        assert process.returncode == 0, err[-3000:]
        found: dict[str, Any] = json.loads(out.read_text())
        return found
