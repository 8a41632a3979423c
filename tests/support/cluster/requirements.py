"""What a machine needs for the test cluster, told in one line where it is missing."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.go_programs import find_go

# Programs by the Debian package that has them; those of every Debian are left out.
_PROGRAMS = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "catatonit": "catatonit",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "unshare": "util-linux",
}
_NETWORK_PLUGINS = (Path("/usr/lib/cni/ptp"), Path("/opt/cni/bin/ptp"))


_BROWSER = "chromium"
"""Opens the pages that runs leave; the cluster runs without it."""


def packages() -> list[str]:
    """Debian packages with all that tests run but do not build."""
    return [*_PROGRAMS.values(), "containernetworking-plugins", _BROWSER]


@functools.cache
def missing() -> str | None:
    """Why the cluster cannot run here and what to do about it; None where it can."""
    if sys.platform != "linux":
        return "the test cluster needs Linux (a virtual machine does)"
    if os.geteuid() != 0:
        return "the test cluster needs root: sudo make test-all"
    absent = [package for name, package in _PROGRAMS.items() if shutil.which(name) is None]
    if not any(path.exists() for path in _NETWORK_PLUGINS):
        absent.append("containernetworking-plugins")
    if absent:
        return f"the test cluster needs packages ({', '.join(absent)}): make cluster-packages"
    apart = ("unshare", "--cgroup", "--mount", "--net", "--pid", "--fork", "true")
    if subprocess.run(apart, capture_output=True).returncode:
        return "the test cluster needs to make namespaces, which this container or kernel refuses"
    try:
        find_go()
    except RuntimeError:
        return "the test cluster is built with Go, which is missing: https://go.dev/dl"
    return None
