"""Messages between two workers of one host: the receiver reads the sender's memory.

A sender *offers* a message by its address and size over a Unix socket, which every pair has;
the receiver copies it from there to where it belongs with one system call (process_vm_readv)
and answers that it has *taken* it. So a message is copied once, needs no buffer on its way, and
nothing is left of it when a process is killed. The system closes a dead process's sockets, which
is how its peers learn of its end.

Nothing happens in the background: a message travels while its receiver waits for it. A sender's
buffer is free again once the receiver has done so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
import torch.distributed as dist

_FRAME = struct.Struct("<QQ")
"""Address and size of an offer; both 0 say that the oldest offer has been taken."""
_TAKEN = _FRAME.pack(0, 0)
_PART_BYTES = 4 << 20
"""What one thread reads at a time."""


class Link:
    """Messages to and from one peer of this host.

    Args:
        peer: its rank.
        pid: its process, as this one sees it.
        connection: a connected SOCK_SEQPACKET socket.
        timeout: seconds after which a silent peer counts as lost.
    """

    def __init__(self, peer: int, pid: int, connection: socket.socket, timeout: float) -> None:
        connection.setblocking(False)
        self._peer, self._pid, self._socket = peer, pid, connection
        self._milliseconds = int(timeout * 1000)
        self._offers: deque[tuple[int, int]] = deque()
        self._untaken: deque[torch.Tensor] = deque()
        self._unread: deque[torch.Tensor] = deque()
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

    def wait_taken(self, number: int) -> None:
        """Block until the peer has taken the message of that number."""
        while self._taken < number:
            self._listen(block=True)

    def wait_read(self, number: int) -> None:
        """Block until the message of that number, and all before it, have been read."""
        while self._read < number:
            while not self._offers:
                self._listen(block=True)
            address, size = self._offers.popleft()
            tensor = self._unread.popleft()
            assert size == tensor.nbytes, f"rank {self._peer} sends {size}, not {tensor.nbytes}"
            self._copy(address, tensor)
            self._read += 1
            self._say(_TAKEN)

    def _copy(self, address: int, tensor: torch.Tensor) -> None:
        try:
            read_memory(self._pid, address, tensor)
        except ProcessLookupError as error:
            raise self._lost("Connection closed by peer") from error

    def _say(self, frame: bytes) -> None:
        """Send a frame. Where the peer's queue is full, take in what it says, lest both wait."""
        while True:
            try:
                self._socket.send(frame, socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                self._wait_for(select.POLLIN | select.POLLOUT)
                self._listen(block=False)
            except OSError as error:
                raise self._lost(error.strerror or "Write error") from error

    def _listen(self, *, block: bool) -> None:
        """Take in one frame; without ``block``, if there is one."""
        try:
            frame = self._socket.recv(_FRAME.size)
        except BlockingIOError:
            if block:
                self._wait_for(select.POLLIN)
            return
        except OSError as error:
            raise self._lost(error.strerror or "Read error") from error
        if not frame:
            raise self._lost("Connection closed by peer")
        if frame == _TAKEN:
            self._untaken.popleft()
            self._taken += 1
        else:
            self._offers.append(_FRAME.unpack(frame))

    def _wait_for(self, events: int) -> None:
        poll = select.poll()
        poll.register(self._socket, events)
        if not poll.poll(self._milliseconds):
            raise self._lost(f"Timed out waiting {self._milliseconds}ms")

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
