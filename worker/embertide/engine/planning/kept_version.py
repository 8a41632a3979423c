"""The current version as the one whose kept rows some nodes' rows are computed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embertide.engine.planning.base_version import CHANGED, planned_how, record_of
from embertide.errors import InputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.pointer import read_pointer
from embertide.spec.grid import GridShape
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob

_ADVICE = "leave out --over-kept, which computes all that the rows are made of"
OTHER_MODEL = (
    "--over-kept: the model has changed since version {version}, whose rows were kept, and vectors"
    " of two models cannot be compared; run the job, or {advice}"
)
JOB_CHANGED = (
    "the job has changed since version {version}, whose rows were kept: neighbours have the rows"
    " that the job of then gives"
)


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
