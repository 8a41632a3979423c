"""A small job in the S3 server, which commands of the command line run."""

from __future__ import annotations

import secrets
from pathlib import Path

from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import list_versions
from embertide.spec.workers import StorageSettings
from tests.support.commands import Commands, Done
from tests.support.s3.server import S3Server

_SIZE = ("--scale", "6", "--width", "4", "--hidden", "4", "-q")


class SmallS3Job:
    """Made by ``embertide synth`` at a place of its own.

    Attributes:
        storage: a client of the server itself, whatever endpoint the job names.
        text: its manifest as it was made; ``file`` is the one that is run.
    """

    def __init__(self, s3: S3Server, endpoint: str, folder: Path) -> None:
        self.place, self._commands = s3.uri(f"job-{secrets.token_hex(4)}"), Commands(folder)
        made = self._commands.run("synth", self.place, *_SIZE, "--endpoint-url", endpoint)
        assert made.code == 0, made.err
        self.output = f"{self.place}/embeddings"
        self.storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region))
        self.text = self.storage.read(f"{self.place}/job.yaml").decode()
        self.file = folder / "job.yaml"
        self.file.write_text(self.text)

    def edit(self, old: str, new: str) -> None:
        """Run it with another manifest from now on."""
        assert old in self.text
        self.file.write_text(self.text.replace(old, new))

    def run(self, *words: str, command: str = "run") -> Done:
        """``embertide run``, or another command, on its manifest."""
        return self._commands.run(command, str(self.file), *words)

    @property
    def versions(self) -> list[str]:
        """Names of what was published."""
        return [info.version for info in list_versions(self.storage, self.output)]

    def names(self, folder: str) -> list[str]:
        """URIs of its objects in a folder."""
        return [info.uri for info in self.storage.list(f"{self.place}/{folder}/")]
