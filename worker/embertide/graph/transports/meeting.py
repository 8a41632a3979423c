"""Finding the peers of this host whose memory we can read, and which can read ours.

Each rank listens at an abstract Unix socket, which no other host and no other container reaches,
and which leaves no file. A process that connects is then asked for by its process number and a
token is read from its memory. What stands in the way differs from host to host (another
container, seccomp, ptrace's scope, another system than Linux), so it is tried, not guessed.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from embertide.graph.transports.direct import Link, Links, read_memory
from embertide.kernels import memory

AllObjects = Callable[[Any], list[Any]]
"""All-gather of a small object, in rank order. Collective: every rank must call."""

_PR_SET_PTRACER = 0x59616D61
_TOKEN_BYTES = 16
_HELLO = struct.Struct(f"<q{_TOKEN_BYTES}sQ")
"""Rank, token, and the address in our memory at which the token stands."""
_CREDENTIALS = struct.Struct("3i")
_SECONDS = 10.0


def meet(rank: int, all_objects: AllObjects, timeout: float) -> dict[int, Link]:
    """Links to all peers of this host with which they work in both directions, by rank.

    Collective: every rank must call.

    Args:
        timeout: seconds after which a silent peer counts as lost.
    """
    token = torch.frombuffer(bytearray(secrets.token_bytes(_TOKEN_BYTES)), dtype=torch.uint8)
    listener = _listen(bytes(token.tolist()))
    own = "" if listener is None else bytes(token.tolist()).hex()
    tokens = [bytes.fromhex(text) for text in all_objects(own)]
    connected = [] if listener is None else _connect_to(tokens[:rank])
    wanted = all_objects([peer for peer, _ in connected])
    found: dict[int, Link] = {}
    links = Links()
    if listener is not None:
        callers = sum(rank in peers for peers in wanted)
        hello = _HELLO.pack(rank, bytes(token.tolist()), token.data_ptr())
        for connection in [*(c for _, c in connected), *_accept(listener, callers)]:
            known = _introduce(connection, hello, tokens)
            if known is not None:
                file = _exchange_files(connection)
                found[known[0]] = Link(links, *known, connection, timeout, file)
        listener.close()
    # The others have read our token once this is over.
    working = all_objects(list(found))
    return {peer: link for peer, link in found.items() if rank in working[peer]}


def _listen(token: bytes) -> socket.socket | None:
    """A socket that is named by the token; None where there is no such thing."""
    if sys.platform != "linux":
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(_name(token))
    listener.listen(socket.SOMAXCONN)
    listener.settimeout(_SECONDS)
    # Where only ancestors may read a process, its launcher may, and so may its other workers.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getppid()), 0, 0, 0)
    return listener


def _name(token: bytes) -> str:
    return f"\0embertide-{token.hex()}"


def _connect_to(tokens: list[bytes]) -> list[tuple[int, socket.socket]]:
    """Connections to those peers, by rank, whose sockets we can reach."""
    connected = []
    for peer, token in enumerate(tokens):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(_name(token))
        except OSError:
            connection.close()
        else:
            connected.append((peer, connection))
    return connected


def _accept(listener: socket.socket, count: int) -> list[socket.socket]:
    """That many connections from processes of our own user."""
    accepted: list[socket.socket] = []
    while len(accepted) < count:
        connection, _ = listener.accept()
        if _credentials(connection)[1] == os.getuid():
            accepted.append(connection)
        else:
            connection.close()
    return accepted


def _introduce(
    connection: socket.socket, hello: bytes, tokens: list[bytes]
) -> tuple[int, int] | None:
    """Exchange hellos and read the peer's token; its rank and process, or None if that fails."""
    connection.settimeout(_SECONDS)
    connection.send(hello, socket.MSG_NOSIGNAL)
    peer, token, address = _HELLO.unpack(connection.recv(_HELLO.size))
    pid, uid, _ = _credentials(connection)
    read = torch.zeros(_TOKEN_BYTES, dtype=torch.uint8)
    with suppress(OSError):
        read_memory(pid, address, read)
    if uid == os.getuid() and token == tokens[peer] == bytes(read.tolist()):
        return peer, pid
    connection.close()
    return None


def _exchange_files(connection: socket.socket) -> int | None:
    """The descriptor of the peer's shared memory; None where either end has none."""
    own, files = memory.shared_file(), []
    # A peer that could not read our token has closed its end.
    with suppress(OSError):
        socket.send_fds(connection, [b"\0"], [] if own is None else [own])
        files = socket.recv_fds(connection, 1, 1)[1]
    if files and own is not None:
        return files[0]
    for file in files:
        os.close(file)
    return None


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(found)
    return pid, uid, gid
