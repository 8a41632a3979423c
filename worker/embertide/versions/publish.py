"""Versions: a run's embeddings become visible at once and whole, or not at all.

Parts come first, then the version's manifest, then LATEST moves by a conditional put; old
versions go only after that. Whatever ends a run at whatever moment, LATEST names a complete
version: the new one or the one before. `pointer.py` has the rules for those who race.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from embertide.errors import ObjectMissing, OutputError, StorageError
from embertide.spec.version_names import MANIFEST, new_version, version_uri
from embertide.storage.protocol import Storage
from embertide.versions.catalog import (
    VersionInfo,
    check_objects,
    complete_versions,
    describe,
    is_complete,
    objects_of,
    part_digests,
    read_manifest,
)
from embertide.versions.pointer import advance, move_back, read_pointer, utc_now
from embertide.versions.read_parts import Batch, read_part
from embertide.versions.retention import remove_old

__all__ = [
    "VersionInfo",
    "discard",
    "finish",
    "iter_embeddings",
    "latest",
    "list_versions",
    "new_version",
    "publish",
    "rollback",
    "version_uri",
]


def publish(
    storage: Storage, output_uri: str, version: str, manifest: dict[str, Any], keep: int
) -> VersionInfo:
    """Make a version whose parts are written complete, then current, then remove old ones.

    One process of a run calls. ``manifest`` needs rows, dim and parts (each a PartDigest as a
    dict); version and created are added. The result's ``current`` is False when a newer
    version or a later rollback keeps LATEST where it is.

    Raises:
        OutputError: a part is missing or has another size; or the version is current but
            older ones could not be removed.
        StorageError: the store refused or failed before the version was visible.
    """
    _check_rows(output_uri, version, manifest)
    check_objects(storage, output_uri, version, manifest)
    full = {"version": version, "created": utc_now(), **manifest}
    _write_manifest(storage, f"{version_uri(output_uri, version)}/{MANIFEST}", full)
    return finish(storage, output_uri, version, keep)


def finish(storage: Storage, output_uri: str, version: str, keep: int) -> VersionInfo:
    """Make a complete version current, then remove old ones: the last steps of `publish`.

    Whoever finds a complete version whose run ended early does them too; what is done already
    stays as it is.

    Raises:
        ObjectMissing: the version is not complete.
        OutputError: the version is current but older ones could not be removed.
    """
    manifest, digest = read_manifest(storage, output_uri, version)
    current = advance(storage, output_uri, version, digest)
    try:
        remove_old(storage, output_uri, keep)
    except StorageError as error:
        raise OutputError(
            f"{version} of {output_uri} is published, but versions beyond the newest {keep} could"
            f" not be removed: {error}"
        ) from error
    return describe(output_uri, version, manifest, digest, current)


def _check_rows(output_uri: str, version: str, manifest: dict[str, Any]) -> None:
    written = sum(part.rows for part in part_digests(manifest))
    if written != manifest["rows"]:
        raise OutputError(
            f"the parts of {version_uri(output_uri, version)} have {written} rows, the graph has"
            f" {manifest['rows']} nodes; nothing was published"
        )


def _write_manifest(storage: Storage, uri: str, manifest: dict[str, Any]) -> None:
    data = json.dumps(manifest, indent=1).encode() + b"\n"
    # A put that was repeated after a lost answer fails too, though the first one did it.
    if not storage.write_if(uri, data, None) and storage.read(uri) != data:
        raise OutputError(f"{uri} exists already; a version is published once, start a new one")


def list_versions(storage: Storage, output_uri: str) -> list[VersionInfo]:
    """All complete versions, oldest first; [] before the first."""
    pointer = read_pointer(storage, output_uri)
    current = pointer.version if pointer is not None else None
    found = []
    for version in complete_versions(storage, output_uri):
        try:
            manifest, digest = read_manifest(storage, output_uri, version)
        except ObjectMissing:
            continue  # Removed by a run that published just now.
        found.append(describe(output_uri, version, manifest, digest, version == current))
    return found


def latest(storage: Storage, output_uri: str) -> VersionInfo:
    """The current version, the one that LATEST names.

    Raises:
        ObjectMissing: nothing was published yet, or the version was removed by hand.
        OutputError: LATEST or the manifest is damaged, or they do not belong together.
    """
    pointer = read_pointer(storage, output_uri)
    if pointer is None:
        raise ObjectMissing(_nothing_current(storage, output_uri))
    manifest, digest = read_manifest(storage, output_uri, pointer.version)
    if digest != pointer.manifest_digest:
        raise OutputError(
            f"{version_uri(output_uri, pointer.version)}/{MANIFEST} was changed after it was"
            f" published: its SHA-256 is {digest}, LATEST has {pointer.manifest_digest}"
        )
    return describe(output_uri, pointer.version, manifest, digest, True)


def _nothing_current(storage: Storage, output_uri: str) -> str:
    there = complete_versions(storage, output_uri)
    if there:
        return (
            f"{output_uri} has no LATEST; choose one of its versions with embertide rollback:"
            f" {', '.join(there)}"
        )
    return f"nothing was published to {output_uri} yet; check the uri, or start embertide run"


def rollback(storage: Storage, output_uri: str, version: str) -> VersionInfo:
    """Make a complete version the current one; nothing is removed.

    Holds until a run that begins later publishes.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: its parts are not all there.
    """
    manifest, digest = read_manifest(storage, output_uri, version)
    check_objects(storage, output_uri, version, manifest)
    move_back(storage, output_uri, version, digest)
    return describe(output_uri, version, manifest, digest, True)


def discard(storage: Storage, output_uri: str, version: str) -> None:
    """Remove what a run that failed has written; its workers must have ended.

    Raises:
        OutputError: the version is complete, so it may have readers.
    """
    objects = objects_of(storage, output_uri, version)
    if is_complete(objects):
        raise OutputError(f"{version_uri(output_uri, version)} is complete; it is not removed")
    storage.delete(info.uri for info in objects)
    storage.sweep(version_uri(output_uri, version))


def iter_embeddings(
    storage: Storage, output_uri: str, version: str | None = None
) -> Iterator[Batch]:
    """All rows of a version (default: the current one), in batches of about 8 MiB.

    Yields (ids, values): ``np.int64 [n]`` or ``pa.LargeStringArray``, and ``float32 [n, D]``.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    version = version if version is not None else latest(storage, output_uri).version
    manifest, _ = read_manifest(storage, output_uri, version)
    for part in part_digests(manifest):
        yield from read_part(storage, version_uri(output_uri, version), part, manifest["dim"])
