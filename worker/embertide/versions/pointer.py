"""LATEST: the one object that says which version is current, moved by conditional puts.

The rules for competing runs and rollbacks:

- A publishing run moves it to its own version, unless it names a newer one already: of
  competing runs the one begun last wins, in whatever order they end.
- A run that would compute the current version again confirms it: LATEST names the same version,
  and when it was checked.
- A rollback moves it always, and holds against all runs that began before the rollback; so does
  the release of a version that a gate held. Their versions are complete and listed, just not
  current; a run begun later moves on.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from embertide.errors import ObjectMissing, OutputError, StoreUnavailable
from embertide.spec.version_names import begun, is_version
from embertide.storage.protocol import Storage
from embertide.versions.objects import manifest_uri

_ATTEMPTS = 100
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE = 10
"""In units of ``_PAUSE_SECONDS``; each is drawn at random up to it."""


@dataclass(frozen=True)
class Pointer:
    """LATEST's contents; times are ISO 8601 in UTC.

    Attributes:
        checked_at: when a run last confirmed that it would compute the same; "" before.
    """

    version: str
    manifest_digest: str
    moved_by: Literal["publish", "rollback", "release"]
    moved_at: str
    checked_at: str = ""

    def to_json(self) -> bytes:
        """As stored, keys in camelCase."""
        names = {_camel(name): value for name, value in asdict(self).items() if value}
        return json.dumps(names, indent=1).encode() + b"\n"

    def holds_against(self, version: str) -> bool:
        """Whether a run that publishes ``version`` leaves this pointer where it is."""
        if self.version >= version:
            return True
        return self.moved_by != "publish" and begun(version) < _time(self.moved_at)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def utc_now() -> str:
    """Now, in ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def pointer_uri(output_uri: str) -> str:
    """The URI of LATEST."""
    return f"{output_uri.rstrip('/')}/LATEST"


def read_pointer(storage: Storage, output_uri: str) -> Pointer | None:
    """LATEST, or None before the first version.

    Raises:
        OutputError: LATEST is not what this program writes.
    """
    uri = pointer_uri(output_uri)
    try:
        return _parse(uri, storage.read(uri))
    except ObjectMissing:
        # A bucket that is missing is an error here.
        if storage.stat(uri) is None:
            return None
        return _parse(uri, storage.read(uri))


def _parse(uri: str, data: bytes) -> Pointer:
    try:
        fields = json.loads(data)
        fields.setdefault("checkedAt", "")
        pointer = Pointer(*(fields[_camel(name)] for name in Pointer.__annotations__))
        if not is_version(pointer.version):
            raise ValueError(f"version is {pointer.version!r}")
        _time(pointer.moved_at)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{uri} is damaged ({error!r}); to rewrite it, run embertide rollback with the version"
            " that should be current"
        ) from error
    return pointer


def advance(storage: Storage, output_uri: str, version: str, digest: str) -> bool:
    """Make a new version current, if the rules above let it; returns whether it is.

    Raises:
        StoreUnavailable: LATEST was moved by competing runs at each of 100 attempts.
    """
    current = True

    def choose(held: bytes | None) -> bytes | None:
        nonlocal current
        pointer = _parse(pointer_uri(output_uri), held) if held is not None else None
        if pointer is not None and pointer.holds_against(version):
            current = pointer.version == version
            return None
        return Pointer(version, digest, "publish", utc_now()).to_json()

    _put(storage, pointer_uri(output_uri), choose)
    return current


def confirm(storage: Storage, output_uri: str, version: str) -> bool:
    """Note in LATEST that a version was checked; False where it is not the current one.

    Raises:
        StoreUnavailable: LATEST was moved by competing runs at each of 100 attempts.
    """
    current = False

    def choose(held: bytes | None) -> bytes | None:
        nonlocal current
        pointer = _parse(pointer_uri(output_uri), held) if held is not None else None
        current = pointer is not None and pointer.version == version
        if pointer is None or not current:
            return None
        return replace(pointer, checked_at=utc_now()).to_json()

    _put(storage, pointer_uri(output_uri), choose)
    return current


def move_back(
    storage: Storage,
    output_uri: str,
    version: str,
    digest: str,
    moved_by: Literal["rollback", "release"] = "rollback",
) -> None:
    """Make a complete version current, whatever LATEST says now.

    Raises:
        ObjectMissing: the version was removed meanwhile; LATEST is as before.
        StoreUnavailable: LATEST was moved by competing runs at each of 100 attempts.
    """
    uri, before = pointer_uri(output_uri), None
    ours = Pointer(version, digest, moved_by, utc_now()).to_json()

    def choose(held: bytes | None) -> bytes:
        nonlocal before
        before = held if held != ours else before
        return ours

    _put(storage, uri, choose)
    if storage.stat(manifest_uri(output_uri, version)) is None:
        _put(storage, uri, lambda held: before if held == ours else None)
        raise ObjectMissing(
            f"{version} of {output_uri} was removed by a competing run that published just now;"
            " list the remaining versions with embertide versions"
        )


def _put(storage: Storage, uri: str, choose: Callable[[bytes | None], bytes | None]) -> None:
    """Replace the contents by ``choose(contents)``, unless that is None: compare and swap.

    Retries whenever a competing writer changed them in between.
    """
    for attempt in range(_ATTEMPTS):
        # In this order: contents newer than the tag make the put fail, older ones cannot be.
        info = storage.stat(uri)
        data = choose(storage.read(uri) if info is not None else None)
        if data is None or storage.write_if(uri, data, info.etag if info is not None else None):
            return
        time.sleep(_PAUSE_SECONDS * random.random() * min(attempt, _LONGEST_PAUSE))
    raise StoreUnavailable(
        f"{uri} was changed by competing runs at each of {_ATTEMPTS} attempts to move it; choose"
        " the current version with embertide rollback"
    )
