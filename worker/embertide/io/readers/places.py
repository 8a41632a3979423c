"""The objects of an input: of one place, several, what fits a pattern, or the days of a window.

Every place must have objects, and no object may be in two of them: read twice it would double its
edges, and left out of one silently the manifest would not say what was read.
"""

from __future__ import annotations

import re
from datetime import date
from fnmatch import fnmatchcase
from functools import partial

from embertide.errors import InputError, ObjectMissing
from embertide.io.readers.objects import FOLDER_MARKER, list_objects
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.places import ObjectInput, Window, is_pattern

_SHOWN = 10
"""Days that a message lists."""

Placed = list[tuple[str, ObjectInfo]]
"""Objects, each with the place that it is in."""


def list_input(storage: Storage, item: ObjectInput, field: str) -> list[ObjectInfo]:
    """The objects of an input, place by place in the order of the manifest, in each by URI.

    None of an optional input that has none.

    Args:
        field: of the manifest that has ``recursive``, for errors.

    Raises:
        ObjectMissing: a place has none; names the days of a window that have none.
        InputError: an object is in two places, or is refused by :func:`list_objects`.
    """
    looks = _look(storage, item, field)
    missing = [error for error in looks if isinstance(error, ObjectMissing)]
    if missing:
        gone = next((error for error in missing if error.no_bucket), None)
        if gone is not None:
            raise gone
        if isinstance(item, EdgeInput) and item.optional and len(missing) == len(looks):
            return []
        _refuse_missing(item, looks, missing[0])
    placed = [
        pair
        for placed_at in looks
        if not isinstance(placed_at, ObjectMissing)
        for pair in placed_at
    ]
    _refuse_twice(placed)
    return [info for _, info in placed]


def _look(storage: Storage, item: ObjectInput, field: str) -> list[Placed | ObjectMissing]:
    """What is in each place of the manifest, several of them at once."""
    return map_objects(item.places, partial(_objects_of, storage, item, field))


def _objects_of(
    storage: Storage, item: ObjectInput, field: str, place: str
) -> Placed | ObjectMissing:
    """The objects of a place, or why there are none."""

    def listed(uri: str) -> Placed:
        objects = list_objects(storage, uri, item.recursive, f"{field}.recursive", item.include)
        return [(uri, info) for info in objects]

    try:
        uris = [place] if item.window is not None else matching(storage, place)
        return [pair for placed in map_objects(uris, listed) for pair in placed]
    except ObjectMissing as error:
        return error


def _refuse_missing(
    item: ObjectInput, looks: list[Placed | ObjectMissing], first: ObjectMissing
) -> None:
    """Refuse places without objects, unless they are days that may have none."""
    if item.window is None:
        raise first
    missing = _days_without(item.window, looks)
    if item.allows_missing_days and len(missing) < len(looks):
        return
    shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
    some = f"{len(missing)} of {len(looks)} days of the window"
    more = ""
    if not item.allows_missing_days:
        more = "; missingDays: allow in it reads the other days, where one at least has objects"
    raise ObjectMissing(
        f"{item.places[item.window.days.index(missing[0])]} has no objects: {some} (until"
        f" {item.window.until}) have none: {shown}. Write them, or correct the window{more}"
    ) from first


def _days_without(window: Window, looks: list[Placed | ObjectMissing]) -> list[date]:
    days = zip(window.days, looks, strict=True)
    return [day for day, objects in days if isinstance(objects, ObjectMissing)]


def missing_days(storage: Storage, item: ObjectInput, field: str) -> list[str]:
    """Days of a window that may have no objects, and have none; [] of any other input."""
    if item.window is None or not item.allows_missing_days:
        return []
    return [str(day) for day in _days_without(item.window, _look(storage, item, field))]


def _refuse_twice(placed: Placed) -> None:
    """Refuse an object that is in two places."""
    first: dict[str, str] = {}
    for place, info in placed:
        if info.uri in first:
            raise InputError(
                f"{info.uri} is in two places of one input, {first[info.uri]} and {place}; it"
                " would count twice. Name places that have no object in common"
            )
        first[info.uri] = place


def places_of(storage: Storage, item: ObjectInput) -> list[str]:
    """URIs of an input's places; instead of a pattern, what fits it.

    Raises:
        ObjectMissing: nothing fits a pattern.
    """
    if item.window is not None:
        return item.places
    return [uri for place in item.places for uri in matching(storage, place)]


def matching(storage: Storage, uri: str) -> list[str]:
    """What :func:`expand` finds.

    Raises:
        ObjectMissing: it finds nothing.
    """
    uris = expand(storage, uri)
    if not uris:
        raise ObjectMissing(
            f"{uri} fits no object or folder that is there (*, ? and [...] stand for characters"
            " within a name; names that begin with '_' or '.' do not count); check the uri"
        )
    return uris


def expand(storage: Storage, uri: str) -> list[str]:
    """URIs of the objects and folders that fit a pattern, sorted; any other URI as it is.

    ``*``, ``?`` and ``[...]`` stand for characters within one name. Names that begin with ``_`` or
    ``.`` only fit a name that is written so. Takes a request or two for each folder in which a
    name is looked for.
    """
    if not is_pattern(uri):
        return [uri]
    scheme, _, path = uri.partition("://")
    names = path.split("/")
    first = next(i for i, name in enumerate(names) if is_pattern(name))
    uris = [f"{scheme}://{'/'.join(names[:first])}"]
    last = len(names) - 1 - (names[-1] == "")
    for i in range(first, last + 1):
        only_folders = i < len(names) - 1
        uris = [
            f"{folder.rstrip('/')}/{name}"
            for folder in uris
            for name in _fitting(storage, folder, names[i], only_folders)
        ]
    return sorted(uris)


def _fitting(storage: Storage, folder: str, pattern: str, only_folders: bool) -> list[str]:
    """Names below a folder that fit; a folder's with a slash at its end."""
    start = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    names = storage.all_names(f"{folder.rstrip('/')}/", start)
    return [
        name
        for name in names
        if fnmatchcase(name.rstrip("/"), pattern)
        and not name.endswith(FOLDER_MARKER)
        and (name[0] not in "_." or pattern[0] == name[0])
        and (name.endswith("/") or not only_folders)
    ]
