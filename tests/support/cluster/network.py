"""The network: a bridge on the first node, which this machine and the second node are linked to.

All of it lives in network namespaces of the nodes except ``embertide0``, this machine's end of the
link, which goes with them. Through it everything here reaches the API server, the S3
server, pods and Services; pods reach nothing beyond this machine.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.cluster.layout import FIRST, HOST, HOST_LINK, NODE, PREFIX, RANGE, SECOND
from tests.support.shell import run

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


def set_up_first(here: int) -> None:
    """Called inside the first node's namespace; ``here`` is a descriptor of this machine's."""
    _ip("link", "set", "lo", "up")
    # Of its own, or it would be the lowest of its ports', and change as the second node goes.
    _ip("link", "add", _BRIDGE, "address", _hardware(NODE), "type", "bridge")
    _ip("address", "add", f"{NODE}/{PREFIX}", "dev", _BRIDGE)
    _ip("link", "set", _BRIDGE, "up")
    _forward(_BRIDGE)
    # Pods of the second node, whether there is one or not.
    _ip("route", "add", SECOND.pods, "via", SECOND.address)

    host = _path(here)
    _ip("link", "add", "host0", "type", "veth", "peer", "name", HOST_LINK, "netns", host, fd=here)
    _ip("link", "set", "host0", "master", _BRIDGE, "up")
    _ip("address", "add", f"{HOST}/{PREFIX}", "dev", HOST_LINK, inside=here)
    _ip("link", "set", HOST_LINK, "up", inside=here)
    _ip("route", "add", RANGE, "via", NODE, inside=here)
    # Not by way of the first node, which would see one direction only.
    _ip("route", "add", SECOND.pods, "via", SECOND.address, inside=here)


def set_up_second(first: int) -> None:
    """Called inside the second node's namespace; ``first`` is a descriptor of the first one's."""
    link, bridged = "eth0", SECOND.name
    _ip("link", "set", "lo", "up")
    _ip(
        "link",
        "add",
        link,
        "type",
        "veth",
        "peer",
        "name",
        bridged,
        "netns",
        _path(first),
        fd=first,
    )
    _ip("link", "set", link, "address", _hardware(SECOND.address))
    _ip("address", "add", f"{SECOND.address}/{PREFIX}", "dev", link)
    _ip("link", "set", link, "up")
    _ip("link", "set", bridged, "master", _BRIDGE, "up", inside=first)
    _forward(link)
    _ip("route", "add", FIRST.pods, "via", FIRST.address)


def _forward(link: str) -> None:
    """Be a router for pods; everything unknown leads nowhere."""
    # Some programs choose their address by it.
    _ip("route", "add", "default", "dev", link)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")


def remove_link() -> None:
    """Take this machine's end away at once; the kernel would a moment after the namespace."""
    if Path("/sys/class/net", HOST_LINK).exists():
        subprocess.run(["ip", "link", "delete", HOST_LINK], capture_output=True)


def _hardware(address: str) -> str:
    """The same for an address each time: neighbours remember it longer than a node may live."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _path(namespace: int) -> str:
    # iproute2 takes a path where it takes a namespace's name.
    return f"/proc/self/fd/{namespace}"


def _ip(*arguments: str, fd: int | None = None, inside: int | None = None) -> str:
    """``fd`` is passed on; ``inside`` is a descriptor of the namespace to run in."""
    enter = () if inside is None else ("nsenter", f"--net={_path(inside)}")
    return run(*enter, "ip", *arguments, fds=tuple(n for n in (fd, inside) if n is not None))
