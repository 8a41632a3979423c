"""LATEST: the one object that says which version is current, moved by conditional puts.

Who may move it, when runs and people act at the same time:

- A publishing run moves it to its own version, unless it names a newer one already: of runs
  racing each other the one begun last wins, in whatever order they end.
- A rollback moves it always, and holds against all runs that began before the rollback.
  Their versions are complete and listed, just not current; a run begun later moves on.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from embertide.errors import ObjectMissing, OutputError, StoreUnavailable
from embertide.store.storage import Storage
from embertide.store.version_names import MANIFEST, begun, is_version, version_uri

_ATTEMPTS = 100
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Pointer:
    """LATEST's contents; ``moved_at`` is ISO 8601 in UTC."""

    version: str
    manifest_digest: str
    moved_by: Literal["publish", "rollback"]
    moved_at: str

    def to_json(self) -> bytes:
        """As stored, keys in camelCase."""
        names = {_camel(name): value for name, value in asdict(self).items()}
        return json.dumps(names, indent=1).encode() + b"\n"

    def holds_against(self, version: str) -> bool:
        """Whether a run that publishes ``version`` leaves this pointer where it is."""
        if self.version >= version:
            return True
        return self.moved_by == "rollback" and begun(version) < _time(self.moved_at)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc_now() -> str:
    """Now, in ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def pointer_uri(output_uri: str) -> str:
    """Where LATEST lies."""
    return f"{output_uri.rstrip('/')}/LATEST"


def read_pointer(storage: Storage, output_uri: str) -> tuple[Pointer | None, str | None]:
    """LATEST and its ETag; (None, None) before the first version.

    Raises:
        OutputError: LATEST is not what this program writes.
    """
    uri = pointer_uri(output_uri)
    # In this order: when LATEST moves in between, the ETag is too old and a put with it fails.
    info = storage.stat(uri)
    if info is None:
        return None, None
    try:
        fields = json.loads(storage.read(uri))
        pointer = Pointer(*(fields[_camel(name)] for name in Pointer.__annotations__))
        if not is_version(pointer.version):
            raise ValueError(f"version is {pointer.version!r}")
        _time(pointer.moved_at)
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{uri} is damaged ({error!r}); embertide rollback with the version that shall be"
            " current writes it anew"
        ) from error
    return pointer, info.etag


def advance(storage: Storage, output_uri: str, version: str, digest: str) -> bool:
    """Make a new version current, if the rules above let it; returns whether it is.

    Raises:
        StoreUnavailable: others moved LATEST at each of 100 attempts.
    """
    for attempt in range(_ATTEMPTS):
        held, etag = read_pointer(storage, output_uri)
        if held is not None and held.holds_against(version):
            return held.version == version
        data = Pointer(version, digest, "publish", utc_now()).to_json()
        if storage.write_if(pointer_uri(output_uri), data, etag):
            return True
        time.sleep(_PAUSE_SECONDS * random.random() * min(attempt, 10))
    raise StoreUnavailable(
        f"{pointer_uri(output_uri)} was changed by others at each of {_ATTEMPTS} attempts to"
        f" make {version} current; the version is complete, choose it with embertide rollback"
    )


def move_back(storage: Storage, output_uri: str, version: str, digest: str) -> None:
    """Make an earlier version current, whatever LATEST says now.

    Raises:
        ObjectMissing: the version was removed at this very moment; LATEST is as before.
    """
    uri = pointer_uri(output_uri)
    before = storage.read(uri) if storage.stat(uri) is not None else None
    ours = storage.write(uri, Pointer(version, digest, "rollback", utc_now()).to_json())
    if storage.stat(f"{version_uri(output_uri, version)}/{MANIFEST}") is None:
        if before is not None:
            storage.write_if(uri, before, ours.etag)
        raise ObjectMissing(
            f"{version} of {output_uri} was removed by a run that published just now; see what"
            " is left with embertide versions"
        )
