"""A TCP proxy that misbehaves when told to: cuts, delays, resets, falls silent, truncates."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds: close() sends RST


class TcpProxy:
    """Forwards connections to one address; thread-safe.

    Attributes:
        delay_seconds: how long every piece of an answer is held back.
        silent: nothing is forwarded any more, and no connection is closed.
        cut_after: bytes of answers after which the next connection to send some is closed in the
            middle; None for never. It happens once.
        refuse: new connections are closed at once.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.delay_seconds, self.silent, self.refuse = 0.0, False, False
        self.cut_after: int | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def cut(self) -> None:
        """Close all connections in the middle of whatever they carry."""
        for end in self._taken():
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """End all connections by RST."""
        for end in self._taken():
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RD)
                end.close()

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _taken(self) -> list[socket.socket]:
        with self._lock:
            found, self._open = list(self._open), set()
        return found

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if self.refuse:
                    client.close()
                    continue
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
        self._forward(server, client, answers=True)
        with self._lock:
            self._open -= {client, server}

    def _forward(self, one: socket.socket, other: socket.socket, *, answers: bool = False) -> None:
        with suppress(OSError):
            while data := one.recv(_CHUNK):
                while self.silent:
                    time.sleep(0.02)
                if answers:
                    time.sleep(self.delay_seconds)
                    data = self._truncated(data)
                other.sendall(data)
                if answers and self.cut_after is not None and self.cut_after < 0:
                    self.cut_after = None
                    break
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _truncated(self, data: bytes) -> bytes:
        with self._lock:
            if self.cut_after is None:
                return data
            left, self.cut_after = self.cut_after, self.cut_after - len(data)
            return data[:left] if self.cut_after < 0 else data


@contextmanager
def tcp_proxy(host: str, port: int) -> Iterator[TcpProxy]:
    """A proxy, closed at the end."""
    proxy = TcpProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
