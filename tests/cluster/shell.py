"""Running other programs: output as text, failure as an error that quotes what they said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def run(
    *command: str | Path,
    fds: tuple[int, ...] = (),
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Standard output; RuntimeError with standard error where the exit status is not 0."""
    result = subprocess.run(
        command, capture_output=True, text=True, pass_fds=fds, input=input, env=env, cwd=cwd
    )
    if result.returncode:
        words = " ".join(map(str, command))
        raise RuntimeError(f"{words} failed:\n{(result.stderr or result.stdout).strip()}")
    return result.stdout
