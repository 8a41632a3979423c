"""The programs of the test cluster."""

from __future__ import annotations

from pathlib import Path

from tests.support.go_programs import MODULES, build
from tests.support.once import Say

CLUSTER_PROGRAMS = (
    "etcd",
    "containerd",
    "kubernetes",
    "coredns",
    "helm",
    "charts",
    "kstatus",
    "s3",
)
"""Go modules, by the names of `go_programs`."""


def build_all(say: Say = print) -> dict[str, Path]:
    """Every program by name; builds those that are missing (minutes with an empty Go cache)."""
    programs: dict[str, Path] = {}
    for name in CLUSTER_PROGRAMS:
        folder = build(MODULES[name], say)
        programs |= {program: folder / program for program in MODULES[name].programs}
    return programs
