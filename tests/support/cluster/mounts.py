"""Mounts inside the node's mount namespace, by the mount command."""

from __future__ import annotations

from pathlib import Path

from tests.support.shell import run


def mount(kind: str, where: Path, *, options: str = "") -> None:
    """Mount a file system that has no device: tmpfs, sysfs, cgroup, cgroup2."""
    flags = ["-o", options] if options else []
    run("mount", "-t", kind, *flags, kind, where)


def unmount_all(where: Path) -> None:
    """Unmount a folder with everything below it."""
    run("umount", "--recursive", where)
