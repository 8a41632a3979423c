"""The current version: whether a run would compute just it, and what it may go on from.

It is confirmed where nothing has changed. Compared are the release, what the job says of its result
(``job_digest``), all objects that it depends on with their sizes and ETags
(:meth:`Inputs.objects`), and the versions of tables. A version that does not say one of these
counts as changed: to compute again is never wrong.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from embertide._version import __version__
from embertide.engine.planning.confirmed import Confirmed
from embertide.engine.planning.inputs import Inputs, input_age, layer_key
from embertide.engine.planning.sizes import ReadRows, check_least
from embertide.errors import EmbertideError, InputError, ObjectMissing, OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import check_objects, read_manifest
from embertide.io.versions.pointer import confirm, read_pointer
from embertide.io.versions.publish import finish
from embertide.spec.grid import GridShape
from embertide.spec.identity import digest_of
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob, Refresh
from embertide.spec.schemes import is_local
from embertide.spec.version_names import REPORT_DATA, begun, version_uri

FULL = "spec.refresh.mode is full, or --force was given"
FORM = 2
"""The form of what is kept: from 2 on there are exact rows beside those that have not moved."""
CHANGED = "the manifest of version {version} was changed after it was published"
_SAME = "its inputs are those of version {version}"
_NEW_MODEL = "the model is another than that of version {version}, and the inputs are the same"
_TOO_OLD = "the last full run, of version {full}, is longer ago than refresh.fullEvery"
_MORE = (
    "version {version} was computed with refresh.{field} {before:g}, which is more than {allowed:g}"
)
_ADVICE = "leave out --over-kept, which computes all that the rows are made of"
OTHER_MODEL = (
    "--over-kept: the model has changed since version {version}, whose rows were kept, and vectors"
    " of two models cannot be compared; run the job, or {advice}"
)
JOB_CHANGED = (
    "the job has changed since version {version}, whose rows were kept: neighbours have the rows"
    " that the job of then gives"
)
AHEAD = (
    "a clock was ahead when the run of version {version} began, so that times do not tell which"
    " files were written to since"
)
Json = dict[str, Any]


@dataclass(frozen=True)
class Base:
    """The current version, if a run may go on from it.

    Attributes:
        version: its name; "": there is none to go on from.
        key: of its kept layers.
        full: the version of the last full run, which its rows rest on.
        how: how its rows were computed.
        basis: what its layers rest on, as their names have it.
        why: why a run does not go on from it; "" where it does, or where nothing was kept.
    """

    version: str = ""
    key: str = ""
    full: str = ""
    how: dict[str, Any] | None = None
    basis: str = ""
    why: str = ""


def kept_key(storage: Storage, output_uri: str) -> str:
    """The key under which the current version has kept its rows; "" where it has not.

    Raises:
        EmbertideError: its manifest cannot be read.
    """
    pointer = read_pointer(storage, output_uri)
    if pointer is None:
        return ""
    manifest, _ = read_manifest(storage, output_uri, pointer.version)
    return str((manifest.get("layers") or {}).get("key", ""))


def planned_how(job: EmbeddingJob, grid: GridShape) -> dict[str, Any]:
    """How a run computes its rows, as far as the job and the grid have it."""
    inference = job.spec.inference
    return {
        "release": __version__,
        "form": FORM,
        "device": job.spec.workers.device,
        "grid": str(grid),
        "rows": inference.rows,
        "fanout": inference.fanout,
        "seed": 0 if inference.fanout == "full" else inference.seed,
    }


def record_of(how: dict[str, Any]) -> str:
    """A digest of how rows are computed: the name of the digests of such rows."""
    return digest_of(how)


def why_too_wrong(manifest: dict[str, Any], spec: Refresh) -> str:
    """Why rows of a version may be more wrong, or may be wrong for longer, than a job allows; "" of
    exact rows, and where they may not.

    A manifest that has a tolerance without a largest error allows any.
    """
    refreshed, version = manifest.get("refresh", {}), manifest["version"]
    tolerance = refreshed.get("tolerance", 0.0)
    if not tolerance:
        return ""
    bounds = (
        ("tolerance", tolerance, spec.tolerance),
        ("maxError", refreshed.get("maxError", 1.0), spec.largest_error),
    )
    for field, before, allowed in bounds:
        if before > allowed:
            return _MORE.format(version=version, field=field, before=before, allowed=allowed)
    return _why_too_old(refreshed.get("full", version), spec)


def _why_too_old(full: str, spec: Refresh) -> str:
    age = (datetime.now(UTC) - begun(full)).total_seconds()
    return _TOO_OLD.format(full=full) if age > spec.full_seconds else ""


def read_base(storage: Storage, job: EmbeddingJob, inputs: Inputs, how: dict[str, Any]) -> Base:
    """What the current version has kept, and why a run does not go on from it.

    Args:
        how: how the run's rows are computed; what it leaves out is not compared.
    """
    output_uri, spec = job.spec.published_uri, job.spec.refresh
    try:
        pointer = read_pointer(storage, output_uri)
        if pointer is None:
            return Base()
        manifest, digest = read_manifest(storage, output_uri, pointer.version)
    except EmbertideError as error:
        return Base(why=str(error))
    if digest != pointer.manifest_digest:
        return Base(why=CHANGED.format(version=pointer.version))
    kept = manifest.get("layers")
    if kept is None:
        asked = spec.keep or spec.mode == "incremental"
        return Base(why=f"version {pointer.version} has kept no rows" if asked else "")
    refreshed = manifest.get("refresh", {})
    base = Base(
        version=pointer.version,
        key=kept["key"],
        full=refreshed.get("full", pointer.version),
        how=kept["how"],
        basis=kept.get("basis", ""),
    )
    if spec.mode == "full":
        return replace(base, why=FULL)
    if why := why_too_wrong(manifest, spec):
        return replace(base, why=why)
    if base.key == layer_key(job, inputs):
        before, now = (
            [item for item in objects if item["kind"] == "model"]
            for objects in (manifest["inputs"], inputs.objects())
        )
        why = _SAME if before == now else _NEW_MODEL
        return replace(base, why=why.format(version=base.version))
    return replace(base, why=_why_not(base, how, spec))


def _why_not(base: Base, how: dict[str, Any], spec: Refresh) -> str:
    if why := _why_too_old(base.full, spec):
        return why
    before = base.how or {}
    for name, value in how.items():
        if before.get(name) != value:
            return (
                f"version {base.version} was computed with {name} {before.get(name)}, not {value}"
            )
    return ""


@dataclass(frozen=True, kw_only=True)
class KeptVersion:
    """The current version, of which the rows of all layers are kept.

    Attributes:
        key: of its kept layers.
        record: the name of the digests of its rows.
        basis: what its layers rest on, as their names have it.
        tolerance: by which rows between its layers may be off, relative to their norms; 0: exact.
        warnings: sentences for the user.
        same_job: the job has not changed since, but for how many nodes there are.
        model_digest: of the model's text and weights.
        inputs: the objects that it was computed from, as its manifest has them.
    """

    version: str
    key: str
    record: str
    basis: str
    tolerance: float
    warnings: tuple[str, ...]
    same_job: bool
    model_digest: str
    inputs: list[dict[str, Any]]

    def check_model(self, digest: str, tables: list[dict[str, Any]]) -> None:
        """Refuse any other model: rows of two models have nothing to do with each other.

        Args:
            digest: of the model's text and weights now.
            tables: its tables now, see :meth:`Inputs.tables_of_model`.

        Raises:
            InputError: names the version.
        """
        if digest != self.model_digest or any(table not in self.inputs for table in tables):
            raise InputError(OTHER_MODEL.format(version=self.version, advice=_ADVICE))


def read_kept(storage: Storage, job: EmbeddingJob) -> KeptVersion:
    """What the current version of a job's output has kept.

    Raises:
        InputError: there is no version, it has kept no rows, or they are computed in another way
            than the job's.
        EmbertideError: its manifest cannot be read.
    """
    output = job.spec.published_uri
    pointer = read_pointer(storage, output)
    if pointer is None:
        raise InputError(f"--over-kept: there is no version in {output} yet; run the job first")
    version = pointer.version
    manifest, digest = read_manifest(storage, output, version)
    if digest != pointer.manifest_digest:
        raise InputError(f"--over-kept: {CHANGED.format(version=version)}; {_ADVICE}")
    kept = manifest.get("layers")
    if kept is None:
        raise InputError(
            f"--over-kept: version {version} has kept no rows; set spec.refresh.keep and run the"
            f" job, whose report says why where rows cannot be kept, or {_ADVICE}"
        )
    _check_how(version, kept["how"], job)
    same = manifest.get("jobDigest") == job_digest(_with_counts(job, manifest["read"]["nodes"]))
    return KeptVersion(
        version=version,
        key=kept["key"],
        record=record_of(kept["how"]),
        basis=kept.get("basis", ""),
        tolerance=manifest.get("refresh", {}).get("tolerance", 0.0),
        warnings=() if same else (JOB_CHANGED.format(version=version),),
        same_job=same,
        model_digest=manifest["model"]["digest"],
        inputs=manifest["inputs"],
    )


def _with_counts(job: EmbeddingJob, counts: dict[str, int]) -> EmbeddingJob:
    """The job with as many nodes as there were: new ones do not make it another job."""
    nodes = [
        node if node.count is None else node.model_copy(update={"count": counts.get(node.name)})
        for node in job.spec.input.nodes
    ]
    of_input = job.spec.input.model_copy(update={"nodes": nodes})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"input": of_input})})


def _check_how(version: str, how: dict[str, Any], job: EmbeddingJob) -> None:
    """Refuse rows that differ by more than rounding from those that the job's are computed with."""
    for name, value in planned_how(job, GridShape.of(1, 1)).items():
        if name not in ("grid", "device") and how.get(name) != value:
            raise InputError(
                f"--over-kept: version {version} was computed with {name} {how.get(name)}, not"
                f" {value}; run the job, or {_ADVICE}"
            )


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
