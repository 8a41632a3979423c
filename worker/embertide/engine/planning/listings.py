"""Whether the folders of a run's inputs still hold what they held when they were listed.

Each object is read in the state in which it was listed, or not at all. But a writer that is not
done adds objects that no listing has had, and half of the data would be published. So folders are
listed a second time once everything is read, and the two listings have to agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from embertide.errors import InputChanged, ObjectMissing
from embertide.io.readers.objects import is_included, listed_folder
from embertide.io.readers.places import expand
from embertide.io.storage.protocol import Listing, ObjectInfo, Storage

_AGAIN = "while the inputs were read; run the job again when nothing writes to them"
_ADDED = (
    "{uri} had {before} objects when it was listed and has {now} now, such as {newest}: it was"
    " written to "
)
_IGNORE = (
    ". Where objects are added all the time, and a run may leave those to the next one, set"
    " spec.input.newObjects: ignore"
)
_FITS = "{uri} fits {pattern} and was not there when that was listed: it was written "
_LEFT = "while the inputs were read; the next run reads those (spec.input.newObjects: ignore)"


class State(NamedTuple):
    """The state of a listing.

    Attributes:
        objects: how many it has.
        digest: SHA-256 of their names, sizes and tags.
        include: patterns of the names that count; without any, all do.
    """

    objects: int
    digest: str
    include: tuple[str, ...] = ()


class Listings:
    """A storage that lists each folder once, however often it is asked, and notes its state.

    Attributes:
        states: URI, as it was listed -> state.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._include: dict[str, Sequence[str]] = {}
        self._listed: dict[str, Listing | ObjectMissing] = {}
        self._names: dict[tuple[str, str], list[str]] = {}
        self.states: dict[str, State] = {}

    @property
    def storage(self) -> Storage:
        """The storage itself, for those who list."""
        return cast(Storage, self)

    def include(self, names: Mapping[str, Sequence[str]]) -> None:
        """Count names that fit some patterns alone in the states of what is listed from now on.

        Args:
            names: URI -> patterns of the names that count there; without any, all do.
        """
        self._include = {uri.rstrip("/"): patterns for uri, patterns in names.items()}

    def scan(self, uri: str) -> Listing:
        """See :meth:`Storage.scan`."""
        if uri not in self._listed:
            self._listed[uri] = listing = self._scan(uri)
            # Also of what has no objects, which an optional input may be.
            objects = [] if isinstance(listing, ObjectMissing) else listing.objects
            self.states[uri] = state_of(objects, self._include.get(uri.rstrip("/"), ()))
        result = self._listed[uri]
        if isinstance(result, ObjectMissing):
            raise result
        return result

    def _scan(self, uri: str) -> Listing | ObjectMissing:
        try:
            return self._storage.scan(uri)
        except ObjectMissing as error:
            return error

    def all_names(self, folder: str, start: str = "") -> list[str]:
        """See :meth:`Storage.all_names`."""
        key = folder, start
        if key not in self._names:
            self._names[key] = self._storage.all_names(folder, start)
        return self._names[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def state_of(objects: Sequence[ObjectInfo], include: Sequence[str] = ()) -> State:
    """The state of a listing; see :class:`State`."""
    counted, digest = _counted(objects, include), hashlib.sha256()
    for info in counted:
        digest.update(f"{info.uri}\n{info.size}\n{info.etag}\n".encode(errors="surrogateescape"))
    return State(len(counted), digest.hexdigest(), tuple(include))


def _counted(objects: Sequence[ObjectInfo], include: Sequence[str]) -> list[ObjectInfo]:
    """The objects whose names an input includes."""
    if not include:
        return list(objects)
    return [info for info in objects if any(is_included(info, pattern) for pattern in include)]


def check_listings(
    storage: Storage,
    states: Mapping[str, State],
    read: Mapping[str, ObjectInfo],
    *,
    strict: bool,
    fitted: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """List folders again; returns a sentence about each to which objects were added.

    Args:
        states: of the first listings.
        fitted: place of an input that is a pattern -> URIs that fitted it.
        read: URI -> each object that was read, as the first listing had it.
        strict: whether added objects are refused; those that were read may never change.

    Raises:
        InputChanged: names an object that was added, changed or removed, and its folder.
    """
    added: list[str] = []
    for pattern, uris in (fitted or {}).items():
        for uri in set(expand(storage, pattern)) - set(uris):
            text = _FITS.format(uri=uri, pattern=pattern)
            if strict:
                raise InputChanged(f"{text}{_AGAIN}{_IGNORE}")
            added.append(f"{text}{_LEFT}")
    for uri, state in states.items():
        objects = _counted(_objects(storage, uri), state.include)
        if state_of(objects, state.include) == state:
            continue
        for change in _changes(uri, objects, read):
            raise InputChanged(f"{change} {_AGAIN}")
        others = [info for info in objects if info.uri not in read]
        if not others:
            continue  # Only what is not read, such as markers, was there and is gone.
        newest = max(others, key=lambda info: info.modified)
        text = _ADDED.format(uri=uri, before=state.objects, now=len(objects), newest=newest.uri)
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
