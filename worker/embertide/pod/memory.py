"""The container's control group: its memory and whether that ran out, its usable cores."""

from __future__ import annotations

import math
import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes of this container were killed because its memory ran out.

    0 where the system does not count them.
    """
    for name in ("memory.events", "memory/memory.oom_control"):  # cgroup v2, v1
        path = root / name
        if path.exists():
            for line in path.read_text().splitlines():
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0


def peak_memory(root: Path = _ROOT) -> int | None:
    """The most bytes that this container has used; None where the system does not count them."""
    for name in ("memory.peak", "memory/memory.max_usage_in_bytes"):  # cgroup v2, v1
        path = root / name
        if path.exists():
            return int(path.read_text())
    return None


def usable_cores(root: Path = _ROOT) -> int:
    """Cores that this container may use: of the machine, or what its CPU limit allows."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _quota(root)
    return max(1, min(cores or 1, math.ceil(quota) if quota else cores or 1))


def _quota(root: Path) -> float | None:
    """The CPU limit in cores, None without one."""
    both = root / "cpu.max"
    if both.exists():
        quota, period = both.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    files = [root / "cpu" / name for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    if not all(path.exists() for path in files):
        return None
    used, whole = (int(path.read_text()) for path in files)
    return used / whole if used > 0 else None


def human_bytes(size: int) -> str:
    """As Kubernetes writes sizes, such as 2.5Gi."""
    for unit, power in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g}{unit}"
    return str(size)
