"""A registry of images and charts on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.go_programs import program
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port


@contextmanager
def registry(folder: Path | None = None) -> Iterator[str]:
    """A registry without accounts; yields its host and port. It speaks plain HTTP.

    Args:
        folder: where it keeps layers; in memory without one. While a layer is pushed, the registry
            has it in memory, up to twice.
    """
    port = free_port()
    address = f"127.0.0.1:{port}"
    command: list[str | Path] = [program("crane"), "registry", "serve", "--address", address]
    if folder is not None:
        command += ["--disk", folder]
    frugal = os.environ | {"GOGC": "10"}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=frugal, stdout=quiet, stderr=quiet) as server:
        try:
            _await(port, server)
            yield address
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
