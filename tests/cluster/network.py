"""The node's network: a bridge with the node's address, and one link to this machine.

All of it lives in the node's network namespace except ``embertide0``, this machine's end of the
link, which goes with the namespace. Through it everything here reaches the API server, the S3
server, pods and Services; pods reach nothing beyond this machine.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from cluster.layout import BRIDGE_PREFIX, HOST, HOST_LINK, NODE, RANGE
from cluster.shell import run

_BRIDGE = "node0"


def check_free() -> None:
    """RuntimeError where this machine already uses the addresses or the link's name."""
    if Path("/sys/class/net", HOST_LINK).exists():
        raise RuntimeError(
            f"network link {HOST_LINK} exists: another test cluster is up on this machine "
            f"(another checkout?); end it, or if none is: ip link delete {HOST_LINK}"
        )
    for match in ("root", "match"):
        routes = _ip("-o", "route", "show", "table", "all", match, RANGE).splitlines()
        taken = [line for line in routes if not line.startswith("default")]
        if taken:
            raise RuntimeError(
                f"the test cluster needs {RANGE}, which this machine routes already: {taken[0]}"
            )


def set_up(host_namespace: int) -> None:
    """Called inside the node's namespace; ``host_namespace`` is a descriptor of this machine's."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", _BRIDGE, "type", "bridge")
    _ip("address", "add", f"{NODE}/{BRIDGE_PREFIX}", "dev", _BRIDGE)
    _ip("link", "set", _BRIDGE, "up")
    # Leads nowhere; some programs choose their address by it.
    _ip("route", "add", "default", "dev", _BRIDGE)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")

    # iproute2 takes a namespace's path where it takes a name.
    host = f"/proc/self/fd/{host_namespace}"
    fds = (host_namespace,)
    _ip("link", "add", "host0", "type", "veth", "peer", "name", HOST_LINK, "netns", host, fds=fds)
    _ip("link", "set", "host0", "master", _BRIDGE, "up")
    outside = ("nsenter", f"--net={host}", "ip")
    run(*outside, "address", "add", f"{HOST}/{BRIDGE_PREFIX}", "dev", HOST_LINK, fds=fds)
    run(*outside, "link", "set", HOST_LINK, "up", fds=fds)
    run(*outside, "route", "add", RANGE, "via", NODE, fds=fds)


def remove_link() -> None:
    """Take this machine's end away at once; the kernel would a moment after the namespace."""
    if Path("/sys/class/net", HOST_LINK).exists():
        subprocess.run(["ip", "link", "delete", HOST_LINK], capture_output=True)


def _ip(*arguments: str, fds: tuple[int, ...] = ()) -> str:
    return run("ip", *arguments, fds=fds)
