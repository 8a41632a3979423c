"""What the operator tells a container: variables and files.

Some variables exist for running a pod's process outside a container, as tests do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from embertide._version import __version__
from embertide.errors import ManifestError
from embertide.spec import naming
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.version_names import is_version

ENV_HTTP_PORT = "EMBERTIDE_HTTP_PORT"
ENV_JOB_FOLDER = "EMBERTIDE_JOB_FOLDER"
ENV_SCRATCH = "EMBERTIDE_SCRATCH"
ENV_TERMINATION_LOG = "EMBERTIDE_TERMINATION_LOG"
ENV_PEER_TIMEOUT = "EMBERTIDE_PEER_TIMEOUT_SECONDS"
"""How long a worker waits for another one that does not answer."""
ENV_HEARTBEAT = "EMBERTIDE_HEARTBEAT_SECONDS"
"""How often pods send heartbeats; one that misses six in a row counts as lost."""
ENV_STAY = "EMBERTIDE_STAY_SECONDS"
"""How long rank 0 goes on serving after it has published, before its container ends."""
ENV_TARGET_MEMORY = "EMBERTIDE_TARGET_MEMORY_BYTES"
"""What the planner lets the work of one worker take, where the grid is its choice."""

_TABLES = TypeAdapter(dict[str, int])


@dataclass(frozen=True)
class ContainerFiles:
    """Where a container finds its job and leaves its files.

    Attributes:
        operator_version: the release of the operator that wrote the job; "" if it did not say.
    """

    job_file: Path
    scratch: Path
    termination_log: Path
    operator_version: str = ""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> ContainerFiles:
        """From the environment, by default where the operator mounts them."""
        return cls(
            Path(env.get(ENV_JOB_FOLDER, naming.JOB_FOLDER)) / naming.JOB_KEY,
            Path(env.get(ENV_SCRATCH, naming.SCRATCH_FOLDER)),
            Path(env.get(ENV_TERMINATION_LOG, naming.TERMINATION_LOG)),
            env.get(naming.ENV_OPERATOR_VERSION, ""),
        )

    def read_job(self) -> EmbeddingJob:
        """The manifest.

        Raises:
            ManifestError: it is missing or wrong; names the releases where the operator has
                another one than this image.
        """
        try:
            return load_manifest(self.job_file)
        except ManifestError as error:
            raise _naming_releases(error, self.operator_version) from error

    def make_temporary(self) -> None:
        """Make the folder for temporary files, which an empty scratch volume does not have."""
        Path(os.environ.setdefault("TMPDIR", str(self.scratch / "tmp"))).mkdir(
            parents=True, exist_ok=True
        )


def _naming_releases(error: ManifestError, operator: str) -> ManifestError:
    """The same error, with the releases that do not understand each other, if it is that."""
    if operator == __version__:
        return error
    by = f"the operator of release {operator}" if operator else "an operator that says no release"
    text = (
        f"written by {by}, read by a worker image of release {__version__}: use an image"
        " of the operator's release (spec.workers.image, or the chart's worker.image), or leave out"
        " what this release does not know"
    )
    return ManifestError([*error.problems, ("", text)], error.source)


@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """A worker's settings.

    Attributes:
        earlier: versions that earlier attempts of this job wrote under.
        tables: versions of tables that were planned, by their fields in ``spec.input``.
        rendezvous: host and port where rank 0 waits for the others.
        memory_limit: of the container in bytes; None: not given.
        threads: for computing; None: the cores the container may use.
        join_seconds: how long to wait for the other pods to start.
    """

    job_uid: str
    attempt: int
    grid: GridShape
    rank: int
    version: str
    earlier: tuple[str, ...]
    rendezvous: tuple[str, int]
    memory_limit: int | None
    threads: int | None
    http_port: int
    join_seconds: int
    peer_timeout_seconds: int
    heartbeat_seconds: int
    stay_seconds: int
    tables: Mapping[str, int] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """This worker as messages name it."""
        return self.grid.describe(self.rank)


class _Reader:
    """Reads variables and collects what is wrong with them."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.problems: list[tuple[str, str]] = []

    def text(self, name: str, pattern: str, what: str, default: str | None = None) -> str:
        value = self._env.get(name, "") or default
        if value is None:
            self.problems.append((name, f"is not set; must be {what}"))
            return ""
        if not re.fullmatch(pattern, value):
            self.problems.append((name, f"is {value!r}; must be {what}"))
            return ""
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        given = None if default is None else str(default)
        text = self.text(name, r"\d{1,18}", f"a number of at least {least}", given)
        if text and int(text) < least:
            self.problems.append((name, f"is {text}; must be a number of at least {least}"))
        return int(text or least)

    def grid(self, name: str) -> GridShape | None:
        value = self._env.get(name, "")
        try:
            return GridShape.parse(value)
        except ValueError as error:
            self.problems.append((name, str(error) if value else "is not set; must be like 2x2"))
            return None

    def versions_of_tables(self, name: str) -> dict[str, int]:
        try:
            return _TABLES.validate_json(self._env.get(name) or "{}")
        except ValidationError:
            message = 'is no JSON of versions by fields, such as {"edges[0]": 7}'
            self.problems.append((name, message))
            return {}

    def versions(self, name: str, *, required: bool) -> tuple[str, ...]:
        listed = self._env.get(name, "")
        found = tuple(part for part in re.split(r"[,\s]+", listed) if part)
        if required and len(found) != 1:
            self.problems.append((name, "must be one version's name"))
        for version in found:
            if not is_version(version):
                self.problems.append((name, f"has {version!r}, which is no version's name"))
        return found


def read_settings(env: Mapping[str, str]) -> WorkSettings:
    """A worker's settings from the environment.

    Raises:
        ManifestError: lists every variable that is missing or wrong.
    """
    read = _Reader(env)
    uid = read.text(naming.ENV_UID, r"\S+", "the job's uid")
    attempt = read.number(naming.ENV_ATTEMPT, least=1)
    grid = read.grid(naming.ENV_GRID)
    rank = read.number(naming.ENV_RANK)
    if grid is not None and rank >= grid.workers:
        read.problems.append((naming.ENV_RANK, f"is {rank}; the grid {grid} has no such worker"))
    version = read.versions(naming.ENV_VERSION, required=True)
    earlier = read.versions(naming.ENV_EARLIER, required=False)
    rendezvous = read.text(
        naming.ENV_RENDEZVOUS,
        r"(\[[\da-fA-F:.]+\]|[^\s:]+):\d{1,5}",  # brackets around an address of IPv6
        "host:port of rank 0",
    )
    limit = read.number(naming.ENV_MEMORY_LIMIT, 0)
    threads = read.number(naming.ENV_THREADS, 0)
    http_port = read.number(ENV_HTTP_PORT, naming.HTTP_PORT)
    join = read.number(naming.ENV_JOIN_SECONDS, 1800, least=1)
    timeout = read.number(ENV_PEER_TIMEOUT, 1800, least=1)
    heartbeat = read.number(ENV_HEARTBEAT, 10, least=1)
    stay = read.number(ENV_STAY, 10)
    tables = read.versions_of_tables(naming.ENV_TABLES)
    if read.problems:
        error = ManifestError(read.problems, "the container's environment")
        raise _naming_releases(error, env.get(naming.ENV_OPERATOR_VERSION, ""))
    host, _, port = rendezvous.rpartition(":")
    return WorkSettings(
        job_uid=uid,
        attempt=attempt,
        grid=grid or GridShape(),
        rank=rank,
        version=version[0],
        earlier=earlier,
        rendezvous=(host.strip("[]"), int(port)),
        memory_limit=limit or None,
        threads=threads or None,
        http_port=http_port,
        join_seconds=join,
        peer_timeout_seconds=timeout,
        heartbeat_seconds=heartbeat,
        stay_seconds=stay,
        tables=tables,
    )


def read_container(env: Mapping[str, str]) -> int | None:
    """The memory limit of each worker's container in bytes; None where nothing sets one.

    Raises:
        ManifestError: the variable is no number.
    """
    read = _Reader(env)
    limit = read.number(naming.ENV_MEMORY_LIMIT, 0)
    if read.problems:
        raise ManifestError(read.problems, "the container's environment")
    return limit or None


def read_target_memory(env: Mapping[str, str], default: int) -> int:
    """What the planner lets the work of one worker take, in bytes.

    Raises:
        ManifestError: the variable is no number.
    """
    read = _Reader(env)
    target = read.number(ENV_TARGET_MEMORY, default, least=1)
    if read.problems:
        raise ManifestError(read.problems, "the container's environment")
    return target
