"""What of a cluster is still on this machine: nothing, once it has ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.support.cluster.cgroups import hierarchies
from tests.support.cluster.layout import HOST_LINK, Layout


def find_leftovers(layout: Layout) -> list[str]:
    """Control groups (and so processes), links, mounts and S3 objects, one line each."""
    groups = [h.cluster for h in hierarchies() if h.cluster.exists()]
    lines = [f"control group {group}: {_processes(group)}" for group in groups]
    if Path("/sys/class/net", HOST_LINK).exists():
        lines.append(f"network link {HOST_LINK}")
    if layout.objects.exists():
        lines.append(f"S3 objects {layout.objects}")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return lines + [f"mount {line}" for line in mounts if str(layout.state) in line]


def _processes(group: Path) -> str:
    found = []
    for file in group.rglob("cgroup.procs"):
        # A group may go while it is looked at.
        with suppress(OSError):
            found += file.read_text().split()
    return f"processes {' '.join(found)}" if found else "empty"
