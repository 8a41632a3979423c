"""Ports for servers that are told theirs before they start, or keep one while they are down."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_FIRST, _LAST = 10_000, 29_999
"""Below those that the system gives to clients and to servers that ask for any, and below those of
Kubernetes: nobody but us takes one of these, also while no server listens."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    chance = random.SystemRandom()
    while True:
        port = chance.randint(_FIRST, _LAST)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
