"""Messages between two workers of one host: the receiver reads the sender's memory.

A sender *offers* a message by its address and size over a Unix socket, which every pair has;
the receiver copies it from there to where it belongs with one system call (process_vm_readv)
and answers that it has *taken* it. So a message is copied once, needs no buffer in between, and
nothing is left of it when a process is killed. The system closes a dead process's sockets, which
is how its peers learn of its end.

Nothing happens in the background: a message travels while its receiver waits for it. A sender's
buffer is free again once the receiver has done so.

Memory that both can map (:mod:`embertide.kernels.memory`) is not copied at all: it is *shared* by
its place in the sender's file, read in place, and taken when the reader is done with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

import torch
import torch.distributed as dist

_FRAME = struct.Struct("<QQ")
"""Address and size of an offer, or the number of parts + 1 of a shared tensor, and then place and
size of each; both 0 say that the oldest of these has been taken."""
_TAKEN = _FRAME.pack(0, 0)
_PART_BYTES = 4 << 20
"""What one thread reads at a time."""


class Links:
    """A rank's links. Whichever is waited for, all take in and send on what they can, so that
    ranks whose queues are full do not wait for each other in a ring."""

    def __init__(self) -> None:
        self._links: dict[int, Link] = {}
        self._poll = select.poll()

    def add(self, file: int, link: Link) -> None:
        """Take part in waiting; ``file`` is the link's socket."""
        self._links[file] = link
        self._poll.register(file, select.POLLIN)

    def drop(self, file: int) -> None:
        """Leave, because the other end has closed."""
        if self._links.pop(file, None) is not None:
            self._poll.unregister(file)

    def wait(self, milliseconds: int) -> bool:
        """Block until something has been sent or received; whether it was before the time."""
        for file, link in self._links.items():
            out = select.POLLOUT if link.has_unsaid() else 0
            self._poll.modify(file, select.POLLIN | out)
        ready = self._poll.poll(milliseconds)
        for file, _ in ready:
            self._links[file].talk()
        return bool(ready)


class Link:
    """Messages to and from one peer of this host.

    Args:
        links: those of this rank, which this one joins.
        peer: its rank.
        pid: its process, as this one sees it.
        connection: a connected SOCK_SEQPACKET socket.
        timeout: seconds after which a silent peer counts as lost.
        file: descriptor of the peer's shared memory, where it can be mapped.
    """

    def __init__(
        self,
        links: Links,
        peer: int,
        pid: int,
        connection: socket.socket,
        timeout: float,
        file: int | None = None,
    ) -> None:
        self.file = file
        connection.setblocking(False)
        self._links, self._peer, self._pid, self._socket = links, peer, pid, connection
        self._file = connection.fileno()
        links.add(self._file, self)
        self._milliseconds = int(timeout * 1000)
        self._offers: deque[tuple[int, int]] = deque()
        self._untaken: deque[torch.Tensor] = deque()
        self._unread: deque[torch.Tensor] = deque()
        self._unsaid: deque[bytes] = deque()
        self._broken = ""
        self._offered = self._taken = self._expected = self._read = 0

    def send(self, tensor: torch.Tensor) -> Sent:
        """Offer a tensor, which stays alive and must not change until it is taken."""
        self._untaken.append(tensor)
        self._offered += 1
        self._say(_FRAME.pack(tensor.data_ptr(), tensor.nbytes))
        return Sent(self, self._offered)

    def receive(self, tensor: torch.Tensor) -> Received:
        """Fill a tensor with the peer's next message, when it is waited for."""
        self._unread.append(tensor)
        self._expected += 1
        return Received(self, self._expected)

    def share(self, tensor: torch.Tensor, places: Sequence[tuple[int, int]]) -> Sent:
        """Let the peer read a tensor of our shared file; it must not change until it is taken.

        Args:
            places: offset and bytes of the parts of the file that the tensor is.
        """
        self._untaken.append(tensor)
        self._offered += 1
        self._say(_FRAME.pack(len(places) + 1, tensor.nbytes))
        for place, size in places:
            self._say(_FRAME.pack(place, size))
        return Sent(self, self._offered)

    def peer_places(self) -> list[tuple[int, int]]:
        """Places and sizes in the peer's file of the next tensor that it shares; waits for it.

        Nothing else may be in flight from the peer until :meth:`release_reads`.
        """
        assert not self._unread, f"messages of rank {self._peer} are still to be read"
        count = self._next_offer()[0] - 1
        return [self._next_offer() for _ in range(count)]

    def _next_offer(self) -> tuple[int, int]:
        while not self._offers:
            self._wait()
        return self._offers.popleft()

    def release_reads(self) -> None:
        """Tell the peer that the oldest tensor it shares with us is no longer read."""
        self._say(_TAKEN)
        while self._unsaid:
            self._wait()

    def wait_taken(self, number: int) -> None:
        """Block until the peer has taken the message of that number."""
        while self._taken < number:
            self._wait()

    def wait_read(self, number: int) -> None:
        """Block until the message of that number, and all before it, have been read."""
        while self._read < number:
            address, size = self._next_offer()
            tensor = self._unread.popleft()
            assert size == tensor.nbytes, f"rank {self._peer} sends {size}, not {tensor.nbytes}"
            self._copy(address, tensor)
            self._read += 1
            self._say(_TAKEN)
        # We may not come back for long, and the peer waits for these.
        while self._unsaid:
            self._wait()

    def _copy(self, address: int, tensor: torch.Tensor) -> None:
        try:
            read_memory(self._pid, address, tensor)
        except ProcessLookupError as error:
            raise self._lost("Connection closed by peer") from error

    def has_unsaid(self) -> bool:
        """Whether frames are left that the socket did not take yet."""
        return bool(self._unsaid)

    def talk(self) -> None:
        """Send and receive what does not block. A lost peer is reported once it is waited for."""
        try:
            self._flush()
            while frame := self._socket.recv(_FRAME.size):
                self._hear(frame)
            self._break("Connection closed by peer")
        except BlockingIOError:
            pass
        except OSError as error:
            self._break(error.strerror or "Read error")

    def _say(self, frame: bytes) -> None:
        self._unsaid.append(frame)
        try:
            self._flush()
        except OSError as error:
            self._break(error.strerror or "Write error")

    def _flush(self) -> None:
        with suppress(BlockingIOError):
            while self._unsaid:
                self._socket.send(self._unsaid[0], socket.MSG_NOSIGNAL)
                self._unsaid.popleft()

    def _hear(self, frame: bytes) -> None:
        if frame == _TAKEN:
            self._untaken.popleft()
            self._taken += 1
        else:
            self._offers.append(_FRAME.unpack(frame))

    def _wait(self) -> None:
        if self._broken:
            raise self._lost(self._broken)
        if not self._links.wait(self._milliseconds):
            raise self._lost(f"Timed out waiting {self._milliseconds}ms")

    def _break(self, why: str) -> None:
        self._broken = why
        self._unsaid.clear()
        self._links.drop(self._file)

    def _lost(self, why: str) -> dist.DistNetworkError:
        return dist.DistNetworkError(f"{why} [rank {self._peer}, on this host]")


class Sent:
    """An offered message."""

    def __init__(self, link: Link, number: int) -> None:
        self._link, self._number = link, number

    def wait(self) -> None:
        """Block until the peer has taken it."""
        self._link.wait_taken(self._number)


class Received:
    """A message to come."""

    def __init__(self, link: Link, number: int) -> None:
        self._link, self._number = link, number

    def wait(self) -> None:
        """Block until it is here."""
        self._link.wait_read(self._number)


class _Span(ctypes.Structure):
    """The system's ``struct iovec``."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


@cache
def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _readers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="embertide-read")


def read_memory(pid: int, address: int, tensor: torch.Tensor) -> None:
    """Fill a contiguous CPU tensor from another process's memory, on torch's number of threads.

    Raises:
        ProcessLookupError: the process is gone.
        OSError: it may not be read, or has nothing there.
    """
    to, size = tensor.data_ptr(), tensor.nbytes
    starts = range(0, size, _PART_BYTES)

    def read(at: int) -> None:
        _read(pid, address + at, to + at, min(_PART_BYTES, size - at))

    threads = torch.get_num_threads()
    if threads == 1 or len(starts) == 1:
        for at in starts:
            read(at)
    else:
        list(_readers(threads).map(read, starts))


def _read(pid: int, address: int, to: int, size: int) -> None:
    done = 0
    while done < size:
        here, there = _Span(to + done, size - done), _Span(address + done, size - done)
        got = _system().process_vm_readv(
            pid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
        )
        if got <= 0:
            code = ctypes.get_errno() or errno.EFAULT
            raise OSError(code, os.strerror(code))
        done += got
