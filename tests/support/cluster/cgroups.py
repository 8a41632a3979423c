"""Control groups: the cluster's own child in every hierarchy, so that one removal ends it all.

Kubelet and runc make groups below what they see as the root. Version 1 has a hierarchy for every
controller, version 2 a single one; both are handled, machines with both count as version 1.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster.mounts import mount
from tests.support.patience import SOON_SECONDS

_NAME = "embertide-cluster"
_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
_WEIGHT = 4
"""Processes beside the cluster that count as much as all of its own: a group counts as one."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy and the group this process has in it."""

    controllers: str  # as mount wants them: "memory", "cpu,cpuacct", "name=systemd"; "" for v2
    group: Path

    @property
    def cluster(self) -> Path:
        """The cluster's group."""
        return self.group / _NAME


def hierarchies() -> list[Hierarchy]:
    """Version 1: all with controllers or a name. Version 2: the one, at its root."""
    named = _memberships()
    if not named:
        return [Hierarchy("", _ROOT)]
    return [Hierarchy(c, _mount_point(c) / path.lstrip("/")) for c, path in named.items()]


@contextlib.contextmanager
def own_groups() -> Iterator[None]:
    """Put this process into groups of the cluster; afterwards take it out and remove them."""
    found = hierarchies()
    for hierarchy in found:
        remove(hierarchy.cluster)  # what a killed run may have left
        hierarchy.cluster.mkdir()
        _prepare(hierarchy)
        _join(hierarchy.cluster)
    try:
        yield
    finally:
        for hierarchy in found:
            _join(hierarchy.group)
            remove(hierarchy.cluster)


def mount_own_view() -> None:
    """Inside the node's namespaces, on a fresh /sys: the cluster's groups become the root."""
    named = _memberships()
    if not named:
        mount("cgroup2", _ROOT)
        # Groups with controllers for children may not hold processes themselves.
        (_ROOT / "components").mkdir()
        for process in (_ROOT / "cgroup.procs").read_text().split():
            (_ROOT / "components" / "cgroup.procs").write_text(process)
        _enable_controllers(_ROOT)
        return
    mount("tmpfs", _ROOT)
    for controllers in named:
        folder = _ROOT / controllers.removeprefix("name=")
        folder.mkdir()
        option = f"none,{controllers}" if controllers.startswith("name=") else controllers
        mount("cgroup", folder, options=option)
        for alias in controllers.split(",") if "," in controllers else ():
            (_ROOT / alias).symlink_to(folder.name)


def remove(group: Path) -> None:
    """Remove a group with those below it; RuntimeError where processes stay in them."""
    deadline = time.monotonic() + SOON_SECONDS
    while group.exists():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of an earlier test cluster still run, see {group}")
        time.sleep(0.02)  # killed processes leave their groups a moment later


def _prepare(hierarchy: Hierarchy) -> None:
    controllers = hierarchy.controllers.split(",")
    if hierarchy.controllers == "":
        _enable_controllers(hierarchy.group)
        (hierarchy.cluster / "cpu.weight").write_text(str(100 * _WEIGHT))
    if "cpu" in controllers:
        (hierarchy.cluster / "cpu.shares").write_text(str(1024 * _WEIGHT))
    if "cpuset" in controllers:
        for name in ("cpuset.cpus", "cpuset.mems"):
            (hierarchy.cluster / name).write_text((hierarchy.group / name).read_text())
        (hierarchy.cluster / "cgroup.clone_children").write_text("1")


def _enable_controllers(group: Path) -> None:
    there = (group / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{name}" for name in _CONTROLLERS if name in there)
    try:
        (group / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        raise RuntimeError(
            f"{group} gives its controllers to no child ({error.strerror}): the test cluster "
            "needs the root of the control groups, as a machine or a virtual machine has it"
        ) from error


def _join(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _memberships() -> dict[str, str]:
    """This process's path in every version 1 hierarchy, by controllers."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return {controllers: path for _, controllers, path in lines if controllers}


def _mount_point(controllers: str) -> Path:
    wanted = set(controllers.split(","))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, source = line.partition(" - ")
        kind, _, options = source.split(" ", 2)
        if kind == "cgroup" and wanted <= set(options.split(",")):
            return Path(fields.split()[4])
    raise RuntimeError(f"the control groups of {controllers} are mounted nowhere")
