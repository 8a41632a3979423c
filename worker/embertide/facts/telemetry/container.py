"""Memory of the container that this process is in, as its limit counts it."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_FILES = (
    ("memory.current", "memory.stat", "inactive_file"),  # cgroup v2
    ("memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),  # cgroup v1
)


def working_set_bytes(root: Path = _ROOT) -> int:
    """The working set: memory of all processes and of files in memory, in bytes.

    Kubernetes evicts by it: what is charged to the control group, without pages of files that the
    kernel can drop at once. 0 where the system does not count it.
    """
    for usage, details, droppable in _FILES:
        try:
            used = int((root / usage).read_text())
            return max(0, used - _entry(root / details, droppable))
        except OSError:
            continue
    return 0


def _entry(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        word, _, value = line.partition(" ")
        if word == name:
            return int(value)
    return 0
