"""A disk that fails to take what it was given: what a scratch file reads of it afterwards.

In a mount namespace of its own there is a file system whose disk is a file in memory with less room
than the file system was promised. Writes to the page cache succeed there, and fail on their way to
the disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from embertide.kernels import scratch_file

_MOUNTED = """
mkdir memory disk
mount -t tmpfs -o size=8m none memory
truncate -s 220m memory/image
mkfs.ext4 -q -F -O ^has_journal memory/image
mount -o loop memory/image disk
exec "$@"
"""
_SIZE = 12 << 20


def missing() -> str:
    """Why there can be no such disk here; "" where there can."""
    tools = all(map(shutil.which, ("unshare", "mkfs.ext4")))
    if os.geteuid() == 0 and Path("/dev/loop-control").exists() and tools:
        return ""
    return "needs root, loop devices, unshare and mkfs.ext4"


def reads_after(way: str, folder: Path) -> list[str]:
    """What three reads in a row bring: "same", "other", or an error's message.

    Args:
        way: how the file is filled: "written" by calls, which "waited" follows up, or "mapped".
        folder: an empty one, where the disk is mounted.
    """
    command = [sys.executable, "-m", __name__, way, str(folder / "disk")]
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-ec", f"cd {folder}; {_MOUNTED}", "bash", *command],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _main(way: str, folder: str) -> None:
    scratch_file._DIRECT = scratch_file._DIRECT if way == "mapped" else 0
    file = scratch_file.ScratchFile(Path(folder), _SIZE)
    values = np.random.default_rng(0).integers(1, 256, _SIZE, np.uint8)
    if way == "mapped":
        file.map()[:] = values.tobytes()
        file.settle()
    else:
        file.write(0, values)
    if way == "waited":
        try:
            file.wait()
            print("other")
        except OSError as error:
            print(error.strerror)
        return
    for _ in range(3):
        # The system takes cached pages back whenever it needs memory.
        Path("/proc/sys/vm/drop_caches").write_text("1")
        out = np.zeros_like(values)
        try:
            file.read(0, out)
            print("same" if np.array_equal(out, values) else "other")
        except OSError as error:
            print(error.strerror)
            return


if __name__ == "__main__":
    _main(*sys.argv[1:])
