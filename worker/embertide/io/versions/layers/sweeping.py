"""Removes kept layers that nothing goes on from any more: after a version is published, and by age.

Seals go first, so that a removal that is cut short leaves blocks without a seal, which are not read
and a later sweep removes. A seal may refer to blocks in the folders of earlier keys: these stay as
long as it does. Which keys go is decided before the seals of the others are read, and an attempt
marks the key that it goes on from; so blocks that a new seal refers to are those of a seal that
stays, until the new one can be read.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

from embertide.errors import EmbertideError, ObjectMissing
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.io.versions.layers.attempts import in_use
from embertide.io.versions.layers.places import SEAL, is_key, key_uri, layers_uri, seal_uri
from embertide.io.versions.layers.seals import Damaged, Seal, from_bytes
from embertide.spec.schemes import is_local

ABANDONED_AFTER = timedelta(hours=24)
"""Age of the newest object of a key at which no job's next attempt is expected any more."""

GIVEN_BACK = "kept layers were removed, since the disk has no room for them beside the version"

_TIME = "_time-"
"""How names of objects begin that are written to read the store's clock."""

_log = logging.getLogger("embertide")


def keys(storage: Storage, output_uri: str) -> list[str]:
    """The keys that have objects."""
    return [name for name in storage.list_folders(layers_uri(output_uri)) if is_key(name)]


def objects_of(storage: Storage, output_uri: str, key: str) -> list[ObjectInfo]:
    """All objects of a key; [] also where another process removes them right now."""
    try:
        return storage.list(f"{key_uri(output_uri, key)}/", hidden=True)
    except ObjectMissing:
        return []


def has_seals(storage: Storage, output_uri: str, key: str) -> bool:
    """Whether a layer, a graph or digests of a key are complete.

    Raises:
        StorageError: the store refuses or does not answer.
    """
    return any(name.endswith(SEAL) for name in storage.all_names(key_uri(output_uri, key)))


def seals_of(storage: Storage, output_uri: str, key: str) -> Iterator[Seal]:
    """The complete layers of a key, without those whose record is damaged, which no run uses.

    Raises:
        StorageError: the store refuses or does not answer.
    """
    for file in storage.all_names(key_uri(output_uri, key)):
        if file.endswith(SEAL):
            name = file.removesuffix(SEAL)
            uri = seal_uri(output_uri, key, name)
            with suppress(ObjectMissing, Damaged):
                yield from_bytes(uri, storage.read(uri), key, name)


def referred(storage: Storage, output_uri: str, of_keys: Iterable[str]) -> dict[str, int]:
    """URI -> bytes of the blocks that seals of some keys refer to, in any key's folder.

    Raises:
        StorageError: the store refuses or does not answer.
    """
    return {
        f"{key_uri(output_uri, of)}/{block.path}": size
        for key in of_keys
        for seal in seals_of(storage, output_uri, key)
        for of, block, size in seal.stored()
    }


def remove(storage: Storage, output_uri: str, gone: Mapping[str, list[ObjectInfo]]) -> None:
    """Remove keys' layers, but for the blocks that the seals of other keys refer to.

    Args:
        gone: key -> its objects; hidden files that killed writers left are among them.

    Raises:
        StorageError: the store does not allow or fails to remove.
    """
    others = [key for key in keys(storage, output_uri) if key not in gone]
    stay = referred(storage, output_uri, others) if gone else {}
    uris = [info.uri for objects in gone.values() for info in objects if info.uri not in stay]
    storage.delete(uri for uri in uris if uri.endswith(SEAL))
    storage.delete(uri for uri in uris if not uri.endswith(SEAL))
    if is_local(output_uri):
        for key in gone:
            _remove_folders(storage, output_uri, key)


def _remove_folders(storage: Storage, output_uri: str, key: str) -> None:
    """Remove directories that are empty now, up to that of all layers.

    Also those without objects, which writers leave that are killed before they create a file.
    """
    _remove_empty(storage, key_uri(output_uri, key))
    storage.sweep(layers_uri(output_uri))


def _remove_empty(storage: Storage, folder: str) -> None:
    """Remove a directory and those below it, as far as they are empty."""
    for name in storage.list_folders(folder):
        _remove_empty(storage, f"{folder}/{name}")
    storage.sweep(folder)


def sweep(
    storage: Storage, output_uri: str, unneeded: Collection[str], stay: Collection[str] = ()
) -> None:
    """Remove the layers of keys that are needed no more, and those that were abandoned.

    Layers that another attempt may read or write stay. One process of a run calls; what cannot be
    removed is a warning, since the version is published.

    Args:
        stay: keys of layers that the next run goes on from, however old they are.
    """
    try:
        there = {key: objects_of(storage, output_uri, key) for key in keys(storage, output_uri)}
        now = _store_time(storage, output_uri) if there else 0.0
        earlier = folders_of(storage, output_uri, [key for key in unneeded if key in there])
        due = [key for key, objects in there.items() if _is_due(key, objects, now, earlier)]
        gone = {
            key: there[key]
            for key in due
            if key not in stay and not in_use(storage, output_uri, key, there[key], now)
        }
        remove(storage, output_uri, gone)
        for key in [key for key in stay if key in there]:
            if not in_use(storage, output_uri, key, there[key], now):
                storage.delete(_left_behind(storage, output_uri, key, there[key]))
    except EmbertideError as error:
        _log.warning("kept layers below %s are not removed: %s", layers_uri(output_uri), error)


def _left_behind(
    storage: Storage, output_uri: str, key: str, objects: list[ObjectInfo]
) -> list[str]:
    """What attempts that were killed have left beside the layers of a key that stay: URIs of marks,
    and of blocks that no seal has."""
    folder = key_uri(output_uri, key)
    blocks, marks = (
        [info.uri for info in objects if info.uri.startswith(f"{folder}/{name}/")]
        for name in ("blocks", "attempts")
    )
    versions = {uri.removeprefix(f"{folder}/blocks/").partition("/")[0] for uri in blocks}
    if len(versions) < 2:
        return marks
    stay = referred(storage, output_uri, keys(storage, output_uri))
    return [*marks, *(uri for uri in blocks if uri not in stay)]


def give_back(storage: Storage, output_uri: str, version: str, stay: Collection[str] = ()) -> bool:
    """Make room where an output lies: remove all layers that no other attempt may read or write;
    whether there were any.

    Any process of a run calls. What cannot be removed is a warning.

    Args:
        version: of the attempt that needs the room; its own marks hold nothing.
        stay: keys whose layers are left.
    """
    try:
        now, gone = time.time(), dict[str, list[ObjectInfo]]()
        for key in keys(storage, output_uri):
            marks = f"{key_uri(output_uri, key)}/attempts/"
            own = f"{marks}{version}"
            objects = [
                info
                for info in objects_of(storage, output_uri, key)
                if not (version and info.uri.startswith(own))
            ]
            kept = any(not info.uri.startswith(marks) for info in objects)
            if kept and key not in stay and not in_use(storage, output_uri, key, objects, now):
                gone[key] = objects
        remove(storage, output_uri, gone)
    except EmbertideError as error:
        _log.warning("kept layers below %s are not removed: %s", layers_uri(output_uri), error)
        return False
    if gone:
        _log.info("%s: %s", GIVEN_BACK, layers_uri(output_uri))
    return bool(gone)


def folders_of(storage: Storage, output_uri: str, of_keys: Collection[str]) -> set[str]:
    """Some keys, and those in whose folders their seals have blocks."""
    seals = (seal for key in of_keys for seal in seals_of(storage, output_uri, key))
    return {*of_keys, *(key for seal in seals for key, _, _ in seal.stored())}


def _is_due(key: str, objects: list[ObjectInfo], now: float, unneeded: Collection[str]) -> bool:
    return key in unneeded or _is_abandoned(objects, now)


def _is_abandoned(objects: list[ObjectInfo], now: float) -> bool:
    newest = max((info.modified for info in objects), default=0.0)
    return now - newest > ABANDONED_AFTER.total_seconds()


def _store_time(storage: Storage, output_uri: str) -> float:
    """Now, in seconds since the epoch, by the clock that the store's times are of."""
    folder = layers_uri(output_uri)
    uri = f"{folder}/{_TIME}{secrets.token_hex(4)}"
    storage.write(uri, b"now")
    info = storage.stat(uri)
    # Those of killed sweeps, too; a sweep at the same moment goes by its own clock then.
    storage.delete([uri, *(f"{folder}/{name}" for name in storage.names(folder, _TIME))])
    return info.modified if info is not None and info.modified else time.time()
