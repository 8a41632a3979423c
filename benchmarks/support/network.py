"""A network of namespaces, one a worker, whose links have the bandwidth that is asked for.

Loopback is too cheap to tell primitives apart. Here every worker has a network namespace with
one veth link to a bridge in a namespace of its own; both ends of a link are shaped by tc, so a
worker sends and receives at most the rate, at once. ``tbf`` shapes where the kernel has it, else
``htb``. ``netem``, which could add latency, is missing in many kernels and not used: a link's
latency is the machine's own, some tens of microseconds.

Nothing outside the namespaces is touched, and they are removed however the body ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_TOKENS_SECONDS = 0.002
"""A bucket holds what a link carries in this time: longer than the timer's granularity."""
_LEAST_TOKENS = 128 << 10


class NoNetwork(Exception):
    """Namespaces or shaping are not to be had; says why, in one line."""


@dataclass(frozen=True)
class Network:
    """Namespaces by worker, the interface inside each, and the qdisc that shapes them."""

    namespaces: tuple[str, ...]
    hub: str
    interface: str
    qdisc: str

    def address(self, worker: int) -> str:
        """Of a worker, for the others."""
        return _address(worker)

    def inside(self, worker: int) -> tuple[str, ...]:
        """What a command line begins with that runs in a worker's namespace."""
        return "ip", "netns", "exec", self.namespaces[worker]

    def shape(self, gigabits: float) -> None:
        """Give both directions of every link this rate."""
        rate = f"{int(gigabits * 1000)}mbit"
        tokens = str(max(_LEAST_TOKENS, int(gigabits * 1e9 / 8 * _TOKENS_SECONDS)))
        ends = [(name, self.interface) for name in self.namespaces]
        ends += [(self.hub, f"port{number}") for number in range(len(self.namespaces))]
        for namespace, interface in ends:
            root = ["tc", "qdisc", "replace", "dev", interface, "root", "handle", "1:"]
            if self.qdisc == "tbf":
                _inside(namespace, *root, "tbf", "rate", rate, "burst", tokens, "latency", "100ms")
                continue
            _inside(namespace, *root, "htb", "default", "1")
            limit = ["rate", rate, "burst", tokens, "cburst", tokens]
            parent = ["dev", interface, "parent", "1:", "classid", "1:1"]
            _inside(namespace, "tc", "class", "replace", *parent, "htb", *limit)


@contextmanager
def network(workers: int) -> Iterator[Network]:
    """Namespaces for so many workers; removed at the end, on an error, on Ctrl-C and SIGTERM.

    Raises:
        NoNetwork: no root, no ``ip`` or ``tc``, or a kernel without namespaces or shaping.
    """
    _refuse()
    prefix = f"embertide-bench-{os.getpid()}"
    names = tuple(f"{prefix}-{number}" for number in range(workers))
    hub = f"{prefix}-hub"
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        _connect(hub, names)
        yield Network(names, hub, "eth0", _qdisc(hub))
    finally:
        signal.signal(signal.SIGTERM, before)
        for name in (*names, hub):  # its links, bridge and qdiscs go with a namespace
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _address(worker: int) -> str:
    return f"10.231.0.{worker + 1}"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _refuse() -> None:
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise NoNetwork(f"no `{tool}`: install iproute2")
    if os.geteuid():
        raise NoNetwork("network namespaces need root")


def _connect(hub: str, names: tuple[str, ...]) -> None:
    _run("ip", "netns", "add", hub)
    _inside(hub, "ip", "link", "add", "bridge", "type", "bridge")
    _inside(hub, "ip", "link", "set", "bridge", "up")
    for number, name in enumerate(names):
        port = f"port{number}"
        _run("ip", "netns", "add", name)
        peer = ["peer", "name", "eth0", "netns", name]
        _inside(hub, "ip", "link", "add", port, "type", "veth", *peer)
        _inside(hub, "ip", "link", "set", port, "master", "bridge", "up")
        _inside(name, "ip", "address", "add", f"{_address(number)}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _inside(name, "ip", "link", "set", interface, "up")


def _qdisc(hub: str) -> str:
    """The first shaping qdisc that this kernel has."""
    rates = {"tbf": ["rate", "1gbit", "burst", "256k", "latency", "50ms"], "htb": ["default", "1"]}
    for name, options in rates.items():
        add = ["tc", "qdisc", "replace", "dev", "port0", "root", "handle", "1:", name, *options]
        if subprocess.run(["ip", "netns", "exec", hub, *add], capture_output=True).returncode == 0:
            return name
    raise NoNetwork("this kernel has neither tbf nor htb to shape links with")


def _inside(namespace: str, *command: str) -> None:
    _run("ip", "netns", "exec", namespace, *command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoNetwork(f"{' '.join(command)}: {done.stderr.strip()}")
