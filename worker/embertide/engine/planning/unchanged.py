"""Whether the current version was computed from just what a run would read now.

Then nothing is computed: the version is confirmed. Compared are the release, what the job says of
its result (``job_digest``), all objects that it depends on with their sizes and ETags
(:meth:`Inputs.objects`), and the versions of tables. A version that does not say one of these
counts as changed: to compute again is never wrong.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from embertide._version import __version__
from embertide.engine.planning.base_version import CHANGED, FULL, why_too_wrong
from embertide.engine.planning.confirmed import Confirmed
from embertide.engine.planning.inputs import Inputs, input_age
from embertide.engine.planning.sizes import ReadRows, check_least
from embertide.errors import ObjectMissing, OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import check_objects, read_manifest
from embertide.io.versions.pointer import confirm, read_pointer
from embertide.io.versions.publish import finish
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.schemes import is_local
from embertide.spec.version_names import REPORT_DATA, begun, version_uri

AHEAD = (
    "a clock was ahead when the run of version {version} began, so that times do not tell which"
    " files were written to since"
)
Json = dict[str, Any]


def confirm_unchanged(storage: Storage, job: EmbeddingJob, inputs: Inputs) -> str:
    """End the run if it would compute the current version again; returns what has changed.

    Old versions are removed as after publishing.

    Raises:
        Confirmed: nothing has; ``LATEST`` has the time.
        InputTooSmall: fewer edges or nodes were read for it than the job allows by now.
        StorageError: the store refuses or does not answer.
    """
    output = job.spec.published_uri
    version, change = change_since(storage, job, inputs)
    if change:
        return change
    if not confirm(storage, output, version):
        return "another run has published meanwhile"
    raise Confirmed(finish(storage, output, version, job.spec.output.keep_versions))


def change_since(storage: Storage, job: EmbeddingJob, inputs: Inputs) -> tuple[str, str]:
    """The current version, and why a run would not compute just that again; "": it would.

    Raises:
        InputTooSmall: fewer edges or nodes were read for it than the job allows by now.
        StorageError: the store refuses or does not answer.
    """
    output = job.spec.published_uri
    pointer = read_pointer(storage, output)
    if pointer is None:
        return "", "there is no version yet"
    if job.spec.refresh.mode == "full":
        return pointer.version, FULL
    version = pointer.version
    try:
        manifest, digest = read_manifest(storage, output, version)
        if digest != pointer.manifest_digest:
            return version, CHANGED.format(version=version)
        change = _change(storage, job, inputs, manifest)
        if change:
            return version, change
        check_objects(storage, output, version, manifest)
    except (ObjectMissing, OutputError) as error:
        return version, str(error)
    if storage.stat(f"{version_uri(output, version)}/{REPORT_DATA}") is None:
        return version, f"version {version} has no report"
    if _too_old(storage, job, inputs):
        return version, "the inputs are older than spec.output.gate.maxInputAge"
    check_least(job, ReadRows(**manifest["read"]))
    return version, ""


def _change(storage: Storage, job: EmbeddingJob, inputs: Inputs, manifest: Json) -> str:
    """What differs from what a version was computed from; "" for nothing."""
    if manifest.get("libraries", {}).get("embertide") != __version__:
        return "another release computed it"
    if manifest.get("jobDigest") != job_digest(job):
        return "the job has changed"
    if why := why_too_wrong(manifest, job.spec.refresh):
        return why
    if manifest.get("tables", []) != [asdict(table) for table in inputs.tables]:
        return "a table has another version"
    objects = inputs.objects()
    change = _changed_object(manifest["inputs"], objects)
    return change or touched(storage, manifest["version"], [item["uri"] for item in objects])


def _too_old(storage: Storage, job: EmbeddingJob, inputs: Inputs) -> bool:
    """Whether the gate would hold what the inputs give, for their age alone."""
    gate = job.spec.output.gate
    if gate is None or gate.max_input_seconds is None:
        return False
    age = input_age(storage, inputs)
    return age is not None and age > gate.max_input_seconds


def _changed_object(before: list[Json], now: list[Json]) -> str:
    """The first object that was added, removed or replaced; "" for none."""
    if before == now:
        return ""
    earlier = {item["uri"]: item for item in before}
    for item in now:
        whose = "the model's " if item["kind"] == "model" else ""
        if item["uri"] not in earlier:
            return f"{whose}{item['uri']} is new"
        if item != earlier.pop(item["uri"]):
            return f"{whose}{item['uri']} has changed"
    return f"{min(earlier)} is gone" if earlier else "the order of the inputs has changed"


def touched(storage: Storage, version: str, uris: list[str]) -> str:
    """A local file that was written to after a version's run began, though its time of
    modification was set back; "" for none. An ETag of a store is of an object's contents.

    Where the version's time is yet to come, no time of a file tells.
    """
    since = begun(version).timestamp()
    if since > time.time() and any(map(is_local, uris)):
        return AHEAD.format(version=version)
    for uri in uris:
        info = storage.stat(uri) if is_local(uri) else None
        if info is not None and info.modified >= since:
            return f"{uri} was touched after it was read"
    return ""
