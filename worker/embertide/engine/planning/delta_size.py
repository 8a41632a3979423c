"""How large the delta of the next version may be, for plans."""

from __future__ import annotations

from embertide.errors import EmbertideError
from embertide.facts.telemetry.format import human_bytes
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import latest
from embertide.spec.manifest import EmbeddingJob

_NOTE = "the delta has at most about {most}, where every row moves beyond the tolerance; {last}"


def delta_notes(storage: Storage, job: EmbeddingJob, output_bytes: int) -> list[str]:
    """A note on the size of the delta, beside that of the current version; [] without deltas."""
    if job.spec.output.delta is None:
        return []
    last = _last(storage, job.spec.published_uri)
    return [_NOTE.format(most=human_bytes(output_bytes), last=last)]


def _last(storage: Storage, output_uri: str) -> str:
    try:
        info = latest(storage, output_uri)
    except EmbertideError:
        return "there is none before the first version"
    types = [] if info.comparison is None else info.comparison.types
    sizes = [of_type.delta for of_type in types if of_type.delta is not None]
    if not sizes or any(size.why for size in sizes):
        return f"{info.version} has none"
    return f"that of {info.version} has {human_bytes(sum(size.size for size in sizes))}"
