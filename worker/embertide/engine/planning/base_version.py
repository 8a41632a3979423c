"""The current version as what a run may go on from: its kept rows, and why they are not used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from embertide._version import __version__
from embertide.engine.planning.inputs import Inputs, layer_key
from embertide.errors import EmbertideError, InputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.pointer import read_pointer
from embertide.spec.grid import GridShape
from embertide.spec.identity import digest_of
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob, Refresh
from embertide.spec.version_names import begun

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
