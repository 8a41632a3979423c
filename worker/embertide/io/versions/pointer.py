"""LATEST: the one object that says which version is current, moved by conditional puts.

The rules for competing runs and rollbacks:

- Each move gives it the next generation. A run notes which one it finds as it begins; if LATEST has
  not moved since, its version becomes current, whatever clocks say.
- Of competing runs the one begun last wins, in whatever order they end: the one that found the
  later generation, and of those that found the same one, the one whose name has the later time.
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
from embertide.io.storage.protocol import Storage
from embertide.io.versions.objects import manifest_uri
from embertide.spec.version_names import begun, is_version

_ATTEMPTS = 100
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE = 10
"""In units of ``_PAUSE_SECONDS``; each is drawn at random up to it."""


MOVED_LATER = "version {version} was made current at {at} ({moved_by}), after this run had begun"
BEGUN_LATER = "version {version} is current, whose run began later than this one"


@dataclass(frozen=True)
class Follows:
    """What LATEST was as a run began: "" and 0 before the first version."""

    version: str = ""
    generation: int = 0


@dataclass(frozen=True)
class Pointer:
    """LATEST's contents; times are ISO 8601 in UTC.

    Attributes:
        checked_at: when a run last confirmed that it would compute the same; "" before.
        generation: how often LATEST has moved; 0 where a release that does not count has moved it.
        follows: the generation that the run of its version found as it began.
    """

    version: str
    manifest_digest: str
    moved_by: Literal["publish", "rollback", "release"]
    moved_at: str
    checked_at: str = ""
    generation: int = 0
    follows: int = 0

    def to_json(self) -> bytes:
        """As stored, keys in camelCase."""
        names = {_camel(name): value for name, value in asdict(self).items() if value}
        return json.dumps(names, indent=1).encode() + b"\n"

    def why_not(self, version: str, follows: Follows | None) -> str:
        """Why a run that publishes ``version`` leaves this pointer where it is; "" if it moves it.

        Args:
            follows: what the run found as it began; None where its release did not note that: then
                the times of names and moves are all that is known.
        """
        if self.version == version or (follows is not None and self._found_by(follows)):
            return ""
        counted = follows is not None and self.generation > 0
        if self.moved_by != "publish" and (counted or begun(version) < _time(self.moved_at)):
            at, moved_by = self.moved_at, self.moved_by
            return MOVED_LATER.format(version=self.version, at=at, moved_by=moved_by)
        ours = follows.generation if follows is not None and counted else 0
        if (self.follows if counted else 0, self.version) > (ours, version):
            return BEGUN_LATER.format(version=self.version)
        return ""

    def _found_by(self, follows: Follows) -> bool:
        """Whether LATEST has not moved since a run found it."""
        if self.generation == 0:
            return self.version == follows.version
        return self.generation <= follows.generation


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
        fields = {"checkedAt": "", "generation": 0, "follows": 0, **fields}
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


def found(storage: Storage, output_uri: str) -> Follows:
    """What a run finds that begins now; before it lists its inputs.

    Raises:
        OutputError: LATEST is not what this program writes.
    """
    pointer = read_pointer(storage, output_uri)
    return Follows() if pointer is None else Follows(pointer.version, pointer.generation)


def advance(
    storage: Storage, output_uri: str, version: str, digest: str, follows: Follows | None = None
) -> str:
    """Make a new version current, if the rules above let it; returns why it is not, "" if it is.

    Args:
        follows: see :meth:`Pointer.why_not`.

    Raises:
        StoreUnavailable: LATEST was moved by competing runs at each of 100 attempts.
    """
    why = ""

    def choose(held: bytes | None) -> bytes | None:
        nonlocal why
        pointer = _parse(pointer_uri(output_uri), held) if held is not None else None
        why = "" if pointer is None else pointer.why_not(version, follows)
        if why or (pointer is not None and pointer.version == version):
            return None
        began = follows or Follows()
        last = max(began.generation, pointer.generation if pointer is not None else 0)
        ours = Pointer(version, digest, "publish", utc_now())
        return replace(ours, generation=last + 1, follows=began.generation).to_json()

    _put(storage, pointer_uri(output_uri), choose)
    return why


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
    uri, before, ours = pointer_uri(output_uri), None, b""
    pointer = Pointer(version, digest, moved_by, utc_now())

    def choose(held: bytes | None) -> bytes:
        nonlocal before, ours
        if not ours or held != ours:
            before, ours = held, replace(pointer, generation=_next(uri, held)).to_json()
        return ours

    _put(storage, uri, choose)
    if storage.stat(manifest_uri(output_uri, version)) is None:
        _put(storage, uri, lambda held: before if held == ours else None)
        raise ObjectMissing(
            f"{version} of {output_uri} was removed by a competing run that published just now;"
            " list the remaining versions with embertide versions"
        )


def _next(uri: str, held: bytes | None) -> int:
    """The generation of a move from these contents; 0 where they are damaged, so that its time
    holds against runs that have begun before."""
    try:
        return _parse(uri, held).generation + 1 if held is not None else 1
    except OutputError:
        return 0


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
