"""What tests of publishing run: a registry for images, its client, a linter of workflows."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.go_programs import program
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port


@contextmanager
def registry() -> Iterator[str]:
    """An empty registry on this machine; yields its host and port. It speaks plain HTTP."""
    port = free_port()
    command = [program("registry"), "-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _await(port, server)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        assert server.poll() is None, f"the registry ended with code {server.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"no registry at port {port}"
            time.sleep(0.05)
