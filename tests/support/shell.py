"""Running other programs: output as text, failure as an error that quotes what they said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def run(
    *command: str | Path,
    fds: tuple[int, ...] = (),
    input: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Standard output; RuntimeError with standard error where the exit status is not 0."""
    given = input.encode() if isinstance(input, str) else input
    result = subprocess.run(
        command, capture_output=True, pass_fds=fds, input=given, env=env, cwd=cwd
    )
    if result.returncode:
        words = " ".join(map(str, command))
        said = (result.stderr or result.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"{words} failed:\n{said}")
    return result.stdout.decode()
