"""Retention: old complete versions are removed, and what runs that ended early left behind.

A version loses its manifest first, so that a removal cut short leaves an incomplete version,
which readers ignore and a later run removes, never a complete one with parts missing.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta

from embertide.errors import ObjectMissing, StorageError
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.io.versions.manifest import order_of
from embertide.io.versions.objects import (
    is_complete,
    is_held,
    manifest_in,
    manifest_uri,
    objects_by_version,
)
from embertide.io.versions.pointer import read_pointer
from embertide.spec.version_names import begun, is_version, version_uri

ABANDONED_AFTER = timedelta(hours=24)
"""Age of an incomplete version, from its run's begin, at which no run can be at work on it."""

_log = logging.getLogger("embertide")


def remove_old(
    storage: Storage,
    output_uri: str,
    keep: int,
    now: datetime | None = None,
    published: str = "",
) -> None:
    """Remove complete versions beyond the newest ``keep``, oldest first, and abandoned ones.

    The version LATEST names always stays. Held versions are counted by themselves, so that a week
    of them leaves readers the versions that they may go back to.

    Args:
        published: a version that was published just now, which stays, whether or not it is current.

    Raises:
        StorageError: the store does not allow or fails to remove.
    """
    assert keep >= 1
    found = objects_by_version(storage, output_uri)
    complete = [version for version, objects in found.items() if is_complete(objects)]
    held = [version for version in complete if is_held(found[version])]
    passed = [version for version in complete if version not in held]
    if max(len(passed), len(held)) > keep:
        orders = dict(map_objects(complete, lambda version: _order(storage, output_uri, version)))
        beyond = [
            version
            for of_kind in (passed, held)
            for version in sorted(of_kind, key=orders.__getitem__)[:-keep]
            if version != published
        ]
        for version in sorted(beyond, key=orders.__getitem__):
            remove_complete(storage, output_uri, version, found[version])
    oldest = (now or datetime.now(UTC)) - ABANDONED_AFTER
    for version, objects in found.items():
        abandoned = version not in complete and begun(version) < oldest
        if abandoned and not _is_current(storage, output_uri, version):
            storage.delete(info.uri for info in objects)
            storage.sweep(version_uri(output_uri, version))
    _abort_lost_uploads(storage, output_uri, oldest)


def _order(storage: Storage, output_uri: str, version: str) -> tuple[str, tuple[int, str]]:
    """A version, and its place; one whose manifest is damaged has no reader, and goes first."""
    try:
        manifest = json.loads(storage.read(manifest_uri(output_uri, version)))
        return version, order_of(version, manifest)
    except (ObjectMissing, ValueError, TypeError, AttributeError):
        return version, (-1, version)


def _abort_lost_uploads(storage: Storage, output_uri: str, oldest: datetime) -> None:
    """Abort uploads of runs that were killed; no listing shows a version that has nothing else.

    The new version is current by now. So a store that does not let us look is a warning: parts that
    stay cost money and harm no reader.
    """
    folder = f"{output_uri.rstrip('/')}/versions/"
    try:
        uris = storage.unfinished(folder)
        names = {uri.removeprefix(folder).partition("/")[0] for uri in uris}
        for version in sorted(filter(is_version, names)):
            if begun(version) < oldest:
                storage.sweep(version_uri(output_uri, version))
    except StorageError as error:
        _log.warning("uploads that killed runs left below %s are not removed: %s", folder, error)


def remove_complete(
    storage: Storage, output_uri: str, version: str, objects: list[ObjectInfo]
) -> None:
    """Remove a complete version with its objects, unless it is the current one."""
    if _is_current(storage, output_uri, version):
        return
    uri = manifest_in(objects)
    assert uri is not None
    try:
        manifest = storage.read(uri)
    except ObjectMissing:
        return  # A competing run removes it right now.
    storage.delete([uri])
    # A rollback that found the manifest before it went may have moved LATEST here since. One
    # that comes later misses the manifest and gives up, so looking once more is enough.
    if _is_current(storage, output_uri, version):
        storage.write(uri, manifest)
        return
    storage.delete(info.uri for info in objects)


def _is_current(storage: Storage, output_uri: str, version: str) -> bool:
    pointer = read_pointer(storage, output_uri)
    return pointer is not None and pointer.version == version
