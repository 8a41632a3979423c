"""Room on the disk for a version and for what is kept beside it: kept rows yield to the version.

Looked at before anything is written. What others write meanwhile, and quotas, are noticed only
once the disk is full: what was kept is given back then (:mod:`embertide.io.storage.full_disk`).
"""

from __future__ import annotations

from contextlib import suppress

from embertide.engine.planning.base_version import kept_key, planned_how, read_base
from embertide.engine.planning.inputs import Inputs, layer_key
from embertide.errors import EmbertideError
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.format import human_bytes
from embertide.io.storage.protocol import Storage
from embertide.io.versions.layers.sweeping import give_back
from embertide.spec.manifest import EmbeddingJob

_BESIDE = 1 << 20
"""Bytes of a version beside its parts: its manifest and the report."""
NO_ROOM = (
    "nothing is kept for a next attempt or run: the disk of {uri} has {free} free, too little for"
    " {kept} beside the version's {version}"
)
FITS = "the disk of {uri} has {free} free, enough for the version ({version}){beside}"
TOO_LARGE = (
    "the disk of {uri} has {free} free, which may be too little for the version ({version}): free"
    " space there, or choose another output.uri"
)


def make_room(
    storage: Storage, job: EmbeddingJob, inputs: Inputs, estimate: Estimate, version: str
) -> str:
    """Why a run keeps nothing: the version would not fit beside it; "" where it may.

    What failed attempts have kept goes where that is needed, and the rows of the current version
    where the run cannot go on from them.

    Args:
        version: of the run.

    Raises:
        StorageError: the disk cannot be looked at.
    """
    output, kept = job.spec.published_uri, estimate.kept_bytes
    needed = _version_bytes(job, estimate)
    goes_on = _goes_on(storage, job, inputs, estimate)
    if goes_on:
        # It writes what has changed, which is not known yet.
        kept = 0
    if _lacks(storage, output, needed + kept):
        own, current = layer_key(job, inputs), ""
        # A run says itself why it does not go on from a version that it cannot read.
        with suppress(EmbertideError):
            current = kept_key(storage, job.spec.output.uri)
        resumes = job.spec.refresh.resume != "never"
        give_back(storage, job.spec.output.uri, version, {current, *([own] if resumes else [])})
        if not goes_on and output == job.spec.output.uri and _lacks(storage, output, needed + kept):
            give_back(storage, output, version, {own} if resumes else ())
    free = storage.free_bytes(output)
    if free is None or not kept or free >= needed + kept:
        return ""
    return NO_ROOM.format(uri=output, free=human_bytes(free), kept=human_bytes(kept),
                          version=human_bytes(estimate.output_bytes))  # fmt: skip


def room_notes(
    storage: Storage, job: EmbeddingJob, inputs: Inputs, estimate: Estimate
) -> list[str]:
    """Notes for plans: whether the version fits the disk, and what is kept beside it; [] of a store
    that does not say."""
    output, kept = job.spec.published_uri, estimate.kept_bytes
    free = storage.free_bytes(output)
    if free is None:
        return []
    needed, size = _version_bytes(job, estimate), human_bytes(estimate.output_bytes)
    texts = {"uri": output, "free": human_bytes(free), "version": size}
    if free < needed:
        return [TOO_LARGE.format(**texts)]
    if not kept:
        return []
    if free < needed + kept and not _goes_on(storage, job, inputs, estimate):
        return [NO_ROOM.format(**texts, kept=human_bytes(kept))]
    beside = f" and what is kept beside it ({human_bytes(kept)} at most)"
    return [FITS.format(**texts, beside=beside)]


def _version_bytes(job: EmbeddingJob, estimate: Estimate) -> int:
    deltas = 1 if job.spec.output.delta is None else 2
    return estimate.output_bytes * deltas + _BESIDE


def _lacks(storage: Storage, output_uri: str, needed: int) -> bool:
    free = storage.free_bytes(output_uri)
    return free is not None and free < needed


def _goes_on(storage: Storage, job: EmbeddingJob, inputs: Inputs, estimate: Estimate) -> bool:
    """Whether a run may go on from the rows of the current version."""
    base = read_base(storage, job, inputs, planned_how(job, estimate.grid))
    return bool(base.version) and not base.why
