"""Processes of pods as seen from this machine, which sees all that run on the node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PAUSE = "/catatonit -P"


def find_processes(pod_uid: str, pattern: str) -> Iterator[int]:
    """Processes of a pod with ``pattern`` in their name or command line, but for pause.

    Their control groups name the pod. Kubelet writes dashes as underscores with systemd only.
    """
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # processes end while we look
            if folder.name.isdigit() and pod_uid in (folder / "cgroup").read_text():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                name = (folder / "comm").read_text()
                if pattern in f"{name} {command}" and not command.startswith(_PAUSE):
                    yield int(folder.name)


def kill_processes(pod_uid: str, pattern: str, number: int) -> int:
    """Send a signal to them; how many there were."""
    found = list(find_processes(pod_uid, pattern))
    for process in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    return len(found)
