"""A disk with little room: commands, or Python code, that run with one in a mount namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def missing() -> str:
    """Why there can be no such disk here; "" where there can."""
    can = os.geteuid() == 0 and shutil.which("unshare") is not None and sys.platform == "linux"
    return "" if can else "needs root, Linux and unshare"


def run_with_disk(folder: Path, size: int, script: str, *arguments: str) -> str:
    """What a shell script prints that has a disk of ``size`` bytes at ``folder``; both end with it.

    In the script ``$python`` is this interpreter and ``$disk`` the folder. It goes on after a
    command that fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mounted = f"set -e; mount -t tmpfs -o size={size} none $disk; set +e; {script}"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", mounted, "bash", *arguments],
        env=os.environ
        | {
            "python": sys.executable,
            "disk": str(folder),
            "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
