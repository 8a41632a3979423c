"""Whether the inputs that a job waits for are there, and waiting for them on one machine.

In a cluster the operator has no credentials of stores: a pod of the job looks (`pod/look.py`), and
the operator decides when the next one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from embertide.errors import InputError, InputsNotReady, ObjectMissing, StoreUnavailable
from embertide.io.readers.edges import split_edges
from embertide.io.readers.features import split_features
from embertide.io.readers.nodes import split_nodes
from embertide.io.readers.objects import list_objects
from embertide.io.readers.places import places_of
from embertide.io.readers.sources import Sources
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.features import FeatureInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeTable
from embertide.spec.readiness import Ready, look_again_seconds
from embertide.spec.reports import MissingInput, awaited
from embertide.spec.tables import TABLE_FORMATS
from embertide.spec.targets import TargetTable

WaitingInput = EdgeInput | NodeTable | FeatureInput | TargetTable
TablesRead = Mapping[str, set[int]]
"""The versions that were read of each table, by its URI."""


def missing_inputs(storage: Storage, job: EmbeddingJob) -> list[MissingInput]:
    """The inputs that are not ready, the one with the shortest time first; [] if all are.

    Each waiting input takes a list of its objects and, with a marker, a look at that; the rows of
    its objects are only looked up once everything else is there.

    Raises:
        StorageError: a store refuses or does not answer.
        InputError: objects lie in subfolders, without ``recursive``.
    """
    sources, read = Sources(storage), _tables_of_last(storage, job)
    missing = [
        MissingInput(
            field=field,
            why=lack.why,
            within_seconds=ready.within_seconds,
            optional=lack.absent,
        )
        for field, item, ready in job.spec.waits
        if (lack := _lack_of(storage, sources, item, ready, field, read)) is not None
    ]
    return sorted(missing, key=lambda entry: entry.within_seconds)


def describe(missing: list[MissingInput]) -> str:
    """What is missing, in a sentence."""
    return "; ".join(f"{entry.field}: {entry.why}" for entry in missing)


def wait_for_inputs(
    storage: Storage,
    job: EmbeddingJob,
    say: Callable[[str], None],
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once all inputs are ready; at once for a job that waits for none.

    What may have no objects, and still has none when its time is over, is not waited for any more.

    Args:
        say: called with a line after every look that finds something missing.
        now: seconds of a clock.

    Raises:
        InputsNotReady: one of them was not ready within its time.
        StorageError: a store refuses.
    """
    began, since = now(), datetime.now(UTC)
    while missing := _look(storage, job):
        waited = now() - began
        missing = awaited(missing, waited)
        if not missing:
            return
        check_patience(missing, waited)
        text = describe(missing)
        left = missing[0].within_seconds - waited
        say(f"waiting since {since:%H:%M:%S} UTC, at most {left:.0f} s more: {text}")
        sleep(min(look_again_seconds(waited), left))


def check_patience(missing: list[MissingInput], waited: float) -> None:
    """Refuse inputs that were waited for long enough.

    Args:
        missing: as :func:`missing_inputs` gives them.
        waited: seconds since the first look.

    Raises:
        InputsNotReady: names the inputs, what they lack and the time.
    """
    late = [entry for entry in missing if waited >= entry.within_seconds]
    if late:
        raise InputsNotReady(
            f"inputs were not ready within {late[0].within_seconds} s (ready.within):"
            f" {describe(late)}. Nothing was computed, and the current version stays"
        )


def _look(storage: Storage, job: EmbeddingJob) -> list[MissingInput]:
    """Inputs that are missing; where a store does not answer, its inputs are not ready."""
    try:
        return missing_inputs(storage, job)
    except StoreUnavailable as error:
        waits = job.spec.waits
        field, _, ready = min(waits, key=lambda entry: entry[2].within_seconds)
        why = f"the store did not answer: {error}"
        return [MissingInput(field=field, why=why, within_seconds=ready.within_seconds)]


@dataclass(frozen=True)
class _Lack:
    """What an input lacks; ``absent``: there are no objects, which the input allows."""

    why: str
    absent: bool = False


def _lack_of(
    storage: Storage,
    sources: Sources,
    item: WaitingInput,
    ready: Ready,
    field: str,
    read: TablesRead,
) -> _Lack | None:
    """What an input lacks in the first of its places that is not ready; None for nothing.

    A place that may have no objects comes last.
    """
    if item.format in TABLE_FORMATS:
        why = _why_table_not_ready(storage, sources, item, ready, field, read)
        return _Lack(why) if why else None
    optional = isinstance(item, EdgeInput) and item.optional
    try:
        places = places_of(storage, item)
    except ObjectMissing as error:
        return _Lack(str(error), optional and not error.no_bucket)
    lacks = [_lack_at(storage, item, place, ready, field) for place in places]
    lacking = [lack for lack in lacks if lack is not None]
    gone = sum(lack.absent for lack in lacking)
    allowed = gone == len(places) if optional else item.allows_missing_days and gone < len(places)
    worst = min(lacking, key=lambda lack: lack.absent and allowed, default=None)
    return worst and replace(worst, absent=worst.absent and allowed)


def _why_table_not_ready(
    storage: Storage,
    sources: Sources,
    item: WaitingInput,
    ready: Ready,
    field: str,
    read: TablesRead,
) -> str:
    """What a table lacks; "" for nothing."""
    marker = _marker_uri(item.location, ready.object or "")
    if ready.object is not None and storage.stat(marker) is None:
        return f"{marker} is not there"
    try:
        files = sources.files(item, field)
    except ObjectMissing as error:
        return str(error)
    return (
        _why_no_newer(sources, item, ready, read)
        or _why_too_little(files, ready)
        or _why_too_few_rows(storage, item, ready, sources)
    )


def _why_no_newer(sources: Sources, item: WaitingInput, ready: Ready, read: TablesRead) -> str:
    """Whether a table still has the version that the output was made of."""
    if not ready.new_version:
        return ""
    snapshot = sources.snapshot(item)
    if snapshot.version not in read.get(item.location, ()):
        return ""
    return (
        f"{snapshot.format} table {item.uri} still has version {snapshot.version} of"
        f" {snapshot.committed_text}, which the current version was made of (newVersion)"
    )


def _tables_of_last(storage: Storage, job: EmbeddingJob) -> TablesRead:
    """What the output's current version was made of, where an input waits for another version."""
    from embertide.io.versions.manifest import read_manifest
    from embertide.io.versions.pointer import read_pointer

    if not any(ready.new_version for _, _, ready in job.spec.waits):
        return {}
    uri = job.spec.published_uri
    pointer = read_pointer(storage, uri)
    if pointer is None:
        return {}
    manifest, _ = read_manifest(storage, uri, pointer.version)
    read: dict[str, set[int]] = {}
    for table in manifest.get("tables") or ():
        read.setdefault(table["uri"], set()).add(table["version"])
    return read


def _lack_at(
    storage: Storage, item: WaitingInput, place: str, ready: Ready, field: str
) -> _Lack | None:
    """What one place of an input lacks; None for nothing."""
    # The marker before the list: objects that it vouches for are then in the list.
    marker = None if ready.object is None else _marker_uri(place, ready.object)
    unmarked = False
    try:
        unmarked = marker is not None and storage.stat(marker) is None
        if unmarked and not _may_be_absent(item):
            return _Lack(f"{marker} is not there")
        objects = list_objects(storage, place, item.recursive, f"{field}.recursive", item.include)
    except ObjectMissing as error:
        why = f"{marker} is not there" if unmarked else str(error)
        return _Lack(why, _may_be_absent(item) and not error.no_bucket)
    if unmarked:
        return _Lack(f"{marker} is not there")
    why = _why_too_little(objects, ready) or _why_too_few_rows(storage, item.at(place), ready)
    return _Lack(why) if why else None


def _may_be_absent(item: WaitingInput) -> bool:
    return item.allows_missing_days or (isinstance(item, EdgeInput) and item.optional)


def _marker_uri(uri: str, name: str) -> str:
    return name if "://" in name else f"{uri.rstrip('/')}/{name}"


def _why_too_little(objects: list[ObjectInfo], ready: Ready) -> str:
    """What the objects lack, by their number, sizes and times."""
    size = sum(info.size for info in objects)
    if ready.min_objects is not None and len(objects) < ready.min_objects:
        return f"{len(objects)} of at least {ready.min_objects} objects are there (minObjects)"
    if ready.min_bytes is not None and size < ready.min_bytes:
        return f"{size:,} of at least {ready.min_bytes:,} bytes are there (minBytes)"
    newest = max(objects, key=lambda info: info.modified)
    age = max(0.0, time.time() - newest.modified)
    if age < ready.settled_seconds:
        return f"{newest.uri} changed {age:.0f} s ago (settled: {ready.settled})"
    return ""


def _why_too_few_rows(
    storage: Storage, item: WaitingInput, ready: Ready, sources: Sources | None = None
) -> str:
    """What the objects lack in rows, by their metadata."""
    if ready.min_rows is None:
        return ""
    try:
        rows = sum(split.rows for split in _split(storage, item, sources))
    except InputError as error:  # it may be half written
        return f"its rows cannot be counted: {error}"
    if rows >= ready.min_rows:
        return ""
    return f"{rows:,} of at least {ready.min_rows:,} rows are there (minRows)"


def _split(storage: Storage, item: WaitingInput, sources: Sources | None) -> list[Split]:
    if isinstance(item, EdgeInput):
        return split_edges(storage, item, sources=sources)
    if isinstance(item, NodeTable | TargetTable):
        return split_nodes(storage, item, sources=sources)
    return split_features(storage, item, sources=sources)
