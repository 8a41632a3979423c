"""The digest of what a job says of its result, ``jobDigest`` in its version's manifest.

An attempt takes over the version that an earlier attempt of its job published only if both have
the same digest: the job may have been edited in between.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from embertide.spec.manifest import EmbeddingJob

_FORM = 1
"""Of what is hashed; goes up when a default changes, since what is left out means the default."""

_NOT_THE_RESULT: Any = {
    "max_shrink": True,
    "new_objects": True,
    "edges": {"__all__": {"ready", "min_edges"}},
    "nodes": {
        "__all__": {"min_nodes": True, "table": {"ready"}, "features": {"ready"}},
    },
}
"""Fields of the input that decide when and whether a job runs, and not what it computes."""


def job_digest(job: EmbeddingJob) -> str:
    """SHA-256, in hex, of the job's inputs, model, sampling, row type, and output's format, data
    type and node types.

    Two manifests that say the same have the same digest: whether a default is written out, a path
    is a ``file://`` URI or a prefix ends with ``/`` makes no difference, nor does a seed without
    sampling. Not part of it is what changes no more than rounding, or where and how a run takes
    place: workers, storage, how rows travel (``groupBytes``, ``depth``, ``groupsPerMessage``), the
    output's URI (a version is looked for below it) and ``keepVersions``, freshness, deadlines and
    retries.

    Names are compared, not contents: new objects below the same URIs do not change it. A version's
    manifest lists the objects that it was made from.
    """
    spec = job.spec
    sampling: dict[str, Any] = {"fanout": "full"}
    if spec.inference.fanout != "full":
        sampling = {"fanout": spec.inference.fanout, "seed": spec.inference.seed}
    # What is left out of a job stands for the default, so that digests of earlier releases stay.
    rows = {} if spec.inference.rows == "float32" else {"rows": spec.inference.rows}
    types = {} if spec.output.node_types is None else {"nodeTypes": sorted(spec.output.node_types)}
    parts = {
        "form": _FORM,
        "input": spec.input.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_THE_RESULT
        ),
        "model": spec.model.model_dump(mode="json", by_alias=True),
        "inference": sampling | rows,
        "output": {"format": spec.output.format, "dtype": spec.output.dtype, **types},
    }
    text = json.dumps(_canonical(parts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The value with no ``/`` at the end of its URIs."""
    if isinstance(value, dict):
        return {
            key: _plain(item) if _is_uri(key) else _canonical(item) for key, item in value.items()
        }
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """A URI, or each of several."""
    return value.rstrip("/") if isinstance(value, str) else [uri.rstrip("/") for uri in value]


def _is_uri(key: str) -> bool:
    return key in ("uri", "uris") or key.endswith("Uri")
