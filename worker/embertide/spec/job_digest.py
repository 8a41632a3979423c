"""The digest of what a job says of its result, ``jobDigest`` in its version's manifest.

An attempt takes over the version that an earlier attempt of its job published only if both have
the same digest: the job may have been edited in between.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from embertide.spec.affects import Affects, without
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob, JobSpec

_FORM = 1
"""The number of the form that is hashed; goes up when a default changes, which a field that is left
out stands for."""
_ALWAYS = {
    "inference": {"fanout": "full", "seed": 0},
    "output": {"format": "parquet", "dtype": "float32"},
}
"""Defaults that are hashed although a manifest leaves them out."""


def _is_not_the_result(affects: Affects) -> bool:
    return Affects.RESULT not in affects


_NOT_THE_RESULT = without(JobSpec, _is_not_the_result)
_NOT_THE_EDGES = without(EdgeInput, _is_not_the_result, Affects.RESULT)


def job_digest(job: EmbeddingJob) -> str:
    """SHA-256, in hex, of the fields of the job that affect its result (:class:`Affects`).

    Two manifests that say the same have the same digest: whether a default is written out, a path
    is a ``file://`` URI or a prefix ends with ``/`` makes no difference, nor does a seed without
    sampling. Not part of it is what changes no more than rounding, or when, where and how a run
    takes place: workers, storage, how rows travel (``groupBytes``, ``depth``,
    ``groupsPerMessage``), the output's URI (a version is looked for below it) and
    ``keepVersions``, freshness, deadlines and retries.

    Names are compared, not contents: new objects below the same URIs do not change it. A version's
    manifest lists the objects that it was made from.
    """
    spec = job.spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_THE_RESULT
    )
    parts = {"form": _FORM, **spec}
    for name, defaults in _ALWAYS.items():
        parts[name] = defaults | spec.get(name, {})
    if parts["inference"]["fanout"] == "full":
        del parts["inference"]["seed"]
    text = json.dumps(_canonical(parts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def edge_fields(edge: EdgeInput) -> Any:
    """What a job says of an edge type that affects its edges, in one form as for the digest."""
    fields = edge.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_THE_EDGES
    )
    return _canonical({"form": _FORM, **fields})


def _canonical(value: Any) -> Any:
    """The value with no ``/`` at the end of its URIs, and node types to publish in one order."""
    if isinstance(value, dict):
        return {key: _canonical_field(key, item) for key, item in value.items()}
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def _canonical_field(key: str, value: Any) -> Any:
    if key == "nodeTypes":
        return sorted(value)
    return _plain(value) if _is_uri(key) else _canonical(value)


def _plain(value: Any) -> Any:
    """A URI, or each of several."""
    return value.rstrip("/") if isinstance(value, str) else [uri.rstrip("/") for uri in value]


def _is_uri(key: str) -> bool:
    return key in ("uri", "uris") or key.endswith("Uri")
