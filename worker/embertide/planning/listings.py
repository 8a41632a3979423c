"""Whether the folders of a run's inputs still hold what they held when they were listed.

Each object is read in the state in which it was listed, or not at all. But a writer that is not
done adds objects that no listing has had, and half of the data would be published. So folders are
listed a second time once everything is read, and the two listings have to agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from embertide.errors import InputChanged, ObjectMissing
from embertide.readers.objects import listed_folder
from embertide.storage.protocol import Listing, ObjectInfo, Storage

_AGAIN = "while the inputs were read; run the job again when nothing writes to them"
_ADDED = (
    "{uri} had {before} objects when it was listed and has {now} now, such as {newest}: it was"
    " written to "
)
_IGNORE = (
    ". Where objects are added all the time, and a run may leave those to the next one, set"
    " spec.input.newObjects: ignore"
)
_LEFT = "while the inputs were read; the next run reads those (spec.input.newObjects: ignore)"
State = tuple[int, str]
"""Of a listing: how many objects it has, and a digest of their names, sizes and tags."""


class NotedListings:
    """A storage that notes the state of each folder that is listed.

    Attributes:
        states: URI, as it was listed -> state.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.states: dict[str, State] = {}

    @property
    def storage(self) -> Storage:
        """The storage itself, for those who list."""
        return cast(Storage, self)

    def scan(self, uri: str) -> Listing:
        """See :meth:`Storage.scan`."""
        # Also of what has no objects, which an optional input may be.
        self.states[uri] = state_of([])
        listing = self._storage.scan(uri)
        self.states[uri] = state_of(listing.objects)
        return listing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def state_of(objects: Sequence[ObjectInfo]) -> State:
    """The state of a listing."""
    digest = hashlib.sha256()
    for info in objects:
        digest.update(f"{info.uri}\n{info.size}\n{info.etag}\n".encode(errors="surrogateescape"))
    return len(objects), digest.hexdigest()


def check_listings(
    storage: Storage, states: Mapping[str, State], read: Mapping[str, ObjectInfo], *, strict: bool
) -> list[str]:
    """List folders again; returns a sentence about each to which objects were added.

    Args:
        states: of the first listings.
        read: URI -> each object that was read, as the first listing had it.
        strict: whether added objects are refused; those that were read may never change.

    Raises:
        InputChanged: names an object that was added, changed or removed, and its folder.
    """
    added: list[str] = []
    for uri, state in states.items():
        objects = _objects(storage, uri)
        if state_of(objects) == tuple(state):
            continue
        for change in _changes(uri, objects, read):
            raise InputChanged(f"{change} {_AGAIN}")
        others = [info for info in objects if info.uri not in read]
        if not others:
            continue  # Only what is not read, such as markers, was there and is gone.
        newest = max(others, key=lambda info: info.modified)
        text = _ADDED.format(uri=uri, before=state[0], now=len(objects), newest=newest.uri)
        if strict:
            raise InputChanged(f"{text}{_AGAIN}{_IGNORE}")
        added.append(f"{text}{_LEFT}")
    return added


def _objects(storage: Storage, uri: str) -> list[ObjectInfo]:
    try:
        return storage.scan(uri).objects
    except ObjectMissing:
        return []


def _changes(
    uri: str, objects: Sequence[ObjectInfo], read: Mapping[str, ObjectInfo]
) -> Iterator[str]:
    """What changed of the objects below a URI that were read."""
    now = {info.uri: info for info in objects}
    folder = listed_folder(uri)
    for info in read.values():
        if info.uri != folder and not info.uri.startswith(f"{folder}/"):
            continue
        if info.uri not in now:
            yield f"{info.uri} was removed"
        elif now[info.uri] != info:
            yield f"{info.uri} changed"
