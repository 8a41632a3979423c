"""An S3 server with a data set, alone in a network namespace behind a shaped link."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.network import Network, network
from embertide.io.storage.opening import open_storage
from embertide.spec.workers import StorageSettings
from tests.support.s3.server import AMBIENT, S3Server, server_program


@dataclass(frozen=True)
class Store:
    """Where a data set is, and how a command gets there.

    Attributes:
        inside: what the command line of a user of the store begins with.
        network: None without a shaped link.
    """

    server: S3Server
    inside: tuple[str, ...]
    network: Network | None

    @property
    def root(self) -> str:
        """The URI below which the data set is."""
        return self.server.uri("data")

    @property
    def storage(self) -> dict[str, str]:
        """The manifest's ``spec.storage``."""
        return {"endpointUrl": self.server.endpoint, "region": self.server.region}


@contextmanager
def store(data: Path, folders: list[str], work: Path, *, loopback: bool) -> Iterator[Store]:
    """A running server with some folders of a data set.

    Args:
        loopback: it is reached over loopback, which nothing shapes.

    Raises:
        NoNetwork: namespaces or shaping are not to be had.
    """
    server = S3Server(server_program(), work / "server")
    with _signed_in(server), nullcontext() if loopback else network(2) as found:
        try:
            server.start()
            _upload(server, data, folders)
            server.stop()
            if found is not None:
                server.host, server.within = found.address(0), found.inside(0)
            server.start()
            yield Store(server, () if found is None else found.inside(1), found)
        finally:
            server.stop()


@contextmanager
def _signed_in(server: S3Server) -> Iterator[None]:
    """Have this process, and those that it starts, the server's credentials."""
    before = dict(os.environ)
    for name in AMBIENT:
        os.environ.pop(name, None)
    os.environ.update(server.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _upload(server: S3Server, data: Path, folders: list[str]) -> None:
    """Everything below some folders, by their names."""
    settings = StorageSettings(endpoint_url=server.endpoint, region=server.region)
    storage = open_storage(settings)
    for path in (path for name in folders for path in sorted((data / name).rglob("*"))):
        if path.is_file():
            storage.write(server.uri(f"data/{path.relative_to(data)}"), path.read_bytes())
