"""promtool, which checks rules and evaluates them on series."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.go_programs import program


def promtool(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Its output, both streams; AssertionError with it where the exit status is not 0."""
    command = [program("promtool"), *arguments]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    return output
