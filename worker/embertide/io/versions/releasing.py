"""What people do with a held version: make it the current one anyway, or remove it."""

from __future__ import annotations

from embertide.errors import ObjectMissing, OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, describe, list_versions
from embertide.io.versions.holding import let_go
from embertide.io.versions.manifest import check_objects, read_manifest
from embertide.io.versions.objects import is_held, objects_of
from embertide.io.versions.pointer import move_back, read_pointer
from embertide.io.versions.retention import remove_complete

_NOT_HELD = (
    "version {version} of {uri} is not held; embertide versions lists which are, and embertide"
    " rollback makes any other one current"
)


def newest_held(storage: Storage, output_uri: str) -> str:
    """The newest version that is held and newer than the current one.

    Raises:
        ObjectMissing: there is none.
    """
    pointer = read_pointer(storage, output_uri)
    found = list_versions(storage, output_uri)
    current = pointer.version if pointer is not None else ""
    names = [info.version for info in found]
    at = names.index(current) + 1 if current in names else 0
    held = [info.version for info in found[at:] if info.held]
    if not held:
        raise ObjectMissing(
            f"{output_uri} has no held version newer than the current one; embertide versions lists"
            " what there is"
        )
    return held[-1]


def release(storage: Storage, output_uri: str, version: str) -> VersionInfo:
    """Make a held version the current one; nothing is removed.

    It stays current until a run that begins later publishes.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: it is not held, or its parts are not all there.
    """
    manifest, digest = read_manifest(storage, output_uri, version)
    if not is_held(objects_of(storage, output_uri, version)):
        raise OutputError(_NOT_HELD.format(version=version, uri=output_uri))
    check_objects(storage, output_uri, version, manifest)
    move_back(storage, output_uri, version, digest, "release")
    let_go(storage, output_uri, version)
    return describe(output_uri, version, manifest, digest, True)


def remove_held(storage: Storage, output_uri: str, version: str) -> None:
    """Remove a held version.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: it is not held, so it may have readers.
    """
    read_manifest(storage, output_uri, version)
    objects = objects_of(storage, output_uri, version)
    if not is_held(objects):
        raise OutputError(_NOT_HELD.format(version=version, uri=output_uri))
    remove_complete(storage, output_uri, version, objects)
