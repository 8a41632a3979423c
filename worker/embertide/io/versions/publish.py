"""Publishing: a run's embeddings become visible at once and whole, or not at all.

Parts come first, then the version's manifest, then LATEST moves by a conditional put, unless a
gate holds the version (`holding.py`); old versions are removed only after that. Whatever ends a
run at whatever moment, LATEST names a complete version: the new one or the one before.
`pointer.py` has the rules for competing runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from embertide.errors import OutputError, StorageError
from embertide.facts.telemetry.format import human_seconds
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, describe
from embertide.io.versions.holding import hold, reasons_held
from embertide.io.versions.manifest import (
    check_objects,
    check_rows,
    follows_in,
    read_manifest,
    write_manifest,
)
from embertide.io.versions.objects import is_complete, manifest_uri, objects_of
from embertide.io.versions.pointer import advance, move_back, utc_now
from embertide.io.versions.retention import remove_old
from embertide.spec.version_names import version_uri

NOT_REMOVED = (
    "{version} of {uri} is published, but versions beyond the newest {keep} could not be removed:"
    " {why}; each run tries again"
)

IS_HELD = (
    "version {version} of {uri} is held: {why}. embertide release makes it current anyway,"
    " embertide discard removes it"
)

CLOCK_SECONDS = 60
CLOCK = (
    "this machine's clock is {seconds} {way} that of {uri}, so that the time in the name of version"
    " {version} is wrong, and ages are (fullEvery, maxInputAge); set the clock"
)
CLOCK_BEFORE = (
    "the name of version {version} has an earlier time than that of {before}, which was current"
    " when its run began: a clock was ahead then, or is behind now; versions are in the order in"
    " which their runs began all the same"
)

_log = logging.getLogger("embertide")


def publish(
    storage: Storage,
    output_uri: str,
    version: str,
    manifest: dict[str, Any],
    keep: int,
    held: Sequence[str] = (),
) -> VersionInfo:
    """Make a version whose parts are written complete, then current, then remove old ones.

    One process of a run calls. ``manifest`` needs rows, dim and parts (each a PartDigest as a
    dict); version and created are added. The result's ``current`` is False when a newer
    version or a later rollback keeps LATEST where it is (``not_current`` says which), or the
    version is held; its ``not_removed`` says why older versions are still there, and ``clock`` what
    is wrong with a clock.

    Args:
        held: why the version does not become current; () where it does.

    Raises:
        OutputError: a part is missing or has another size.
        StorageError: the store refused or failed before the version was visible.
    """
    check_rows(output_uri, version, manifest)
    check_objects(storage, output_uri, version, manifest)
    if held:
        hold(storage, output_uri, version, held)
    full = {"version": version, "created": utc_now(), **manifest}
    write_manifest(storage, output_uri, version, full)
    clock = _clock(storage, output_uri, version, full)
    if clock:
        _log.warning("%s", clock)
    return replace(finish(storage, output_uri, version, keep), clock=clock)


def _clock(storage: Storage, output_uri: str, version: str, manifest: dict[str, Any]) -> str:
    """What is wrong with this machine's clock, or that of an earlier run; "" for nothing.

    The store has the time at which the manifest was written, just now.
    """
    follows = follows_in(manifest)
    written = storage.stat(manifest_uri(output_uri, version))
    if written is not None and written.modified:
        ahead = time.time() - written.modified
        if abs(ahead) > CLOCK_SECONDS:
            way = "ahead of" if ahead > 0 else "behind"
            return CLOCK.format(
                version=version, uri=output_uri, seconds=human_seconds(abs(ahead)), way=way
            )
    if follows is not None and version < follows.version:
        return CLOCK_BEFORE.format(version=version, before=follows.version)
    return ""


def finish(storage: Storage, output_uri: str, version: str, keep: int) -> VersionInfo:
    """Make a complete version current unless it is held, then remove old ones.

    These are the last steps of `publish`. An attempt that finds a complete version of a run that
    ended early does them too; what is done already stays as it is. Versions that cannot be removed
    are a warning: readers have the new one.

    Raises:
        ObjectMissing: the version is not complete.
    """
    manifest, digest = read_manifest(storage, output_uri, version)
    held = reasons_held(storage, output_uri, version)
    why = "" if held else advance(storage, output_uri, version, digest, follows_in(manifest))
    not_removed = _remove_old(storage, output_uri, version, keep)
    info = describe(output_uri, version, manifest, digest, not (held or why), held)
    return replace(info, not_removed=not_removed, not_current=why)


def _remove_old(storage: Storage, output_uri: str, version: str, keep: int) -> str:
    """Remove old versions; returns what is wrong if they could not be removed, else ""."""
    try:
        remove_old(storage, output_uri, keep, published=version)
    except (StorageError, OutputError) as error:
        problem = NOT_REMOVED.format(version=version, uri=output_uri, keep=keep, why=error)
        _log.warning("%s", problem)
        return problem
    return ""


def rollback(storage: Storage, output_uri: str, version: str) -> VersionInfo:
    """Make a complete version the current one; nothing is removed.

    Holds until a run that begins later publishes.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: its parts are not all there, or it is held.
    """
    manifest, digest = read_manifest(storage, output_uri, version)
    if held := reasons_held(storage, output_uri, version):
        raise OutputError(IS_HELD.format(version=version, uri=output_uri, why="; ".join(held)))
    check_objects(storage, output_uri, version, manifest)
    move_back(storage, output_uri, version, digest)
    return describe(output_uri, version, manifest, digest, True)


def discard(storage: Storage, output_uri: str, version: str, uploads: Iterable[str] = ()) -> None:
    """Remove what a run that failed has written; its workers must have ended.

    Args:
        uploads: URIs of the objects whose uploads its workers have begun, as far as known.

    Raises:
        OutputError: the version is complete, so it may have readers.
    """
    objects = objects_of(storage, output_uri, version)
    if is_complete(objects):
        raise OutputError(f"{version_uri(output_uri, version)} is complete; it is not removed")
    storage.delete(info.uri for info in objects)
    storage.sweep(version_uri(output_uri, version), uploads)
