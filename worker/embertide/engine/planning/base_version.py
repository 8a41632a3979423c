"""The current version as what a run may go on from: its kept rows, and why they are not used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from embertide._version import __version__
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.layer_key import layer_key
from embertide.errors import EmbertideError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.pointer import read_pointer
from embertide.spec.grid import GridShape
from embertide.spec.identity import digest_of
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
