"""Embeddings out: every rank writes its rows, then the version becomes visible at once.

Parts are written under the version's own prefix, read back and verified by their writers;
only then does rank 0 write the version's manifest and move the pointer. Until that moment
readers see the previous version, whatever happens here.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist

import embertide
from embertide.context import RunContext
from embertide.errors import EmbertideError, OutputError
from embertide.kernels.ids import Ids
from embertide.planning.order import WorkOrder
from embertide.readers.feature_schema import FeatureSchema
from embertide.spec.features import FeatureInput
from embertide.spec.run_digest import run_digest
from embertide.steps import Program
from embertide.telemetry.clock import Clock
from embertide.versions.catalog import VersionInfo
from embertide.versions.parts import PartDigest, PartWriter, verify_part
from embertide.versions.publish import publish

_BATCH_VALUES = 1 << 20


class PeerFailed(dist.DistError):
    """Another rank could not write its part."""


def write_parts(ctx: RunContext, uri: str, ids: Ids, embeddings: torch.Tensor) -> list[PartDigest]:
    """Write our part; the digests of all ranks' parts, in rank order.

    An error of ours counts only if no rank is lost: when a worker dies, its pod removes the
    unfinished version, and the ranks that still write find their parts gone. They report the
    lost rank, not the missing part. Collective: every rank must call.

    Raises:
        OutputError, StorageError: our part could not be written, see :func:`write_part`.
        PeerFailed: another rank's could not.
    """
    failed: EmbertideError | None = None
    own: dict[str, Any]
    try:
        own = {"part": asdict(write_part(ctx, uri, ids, embeddings))}
        ctx.delivered()
    except EmbertideError as error:
        own, failed = {"error": str(error)}, error
    found = ctx.exchange.all_objects(own)
    if failed is not None:
        raise failed
    return [_part_of(rank, told) for rank, told in enumerate(found)]


def _part_of(rank: int, told: dict[str, Any]) -> PartDigest:
    if "error" in told:
        raise PeerFailed(f"worker {rank}: {told['error']}")
    return PartDigest(**told["part"])


def write_part(ctx: RunContext, uri: str, ids: Ids, embeddings: torch.Tensor) -> PartDigest:
    """Write and verify our rows; every rank writes one part.

    Collective: every rank must call.

    Args:
        ids: original ids of our sub-range.
        embeddings: [N/(P*M), D'] float32.

    Raises:
        OutputError: not writable, not as written, or NaN or infinite embeddings.
    """
    output = ctx.job.spec.output
    rows, width = embeddings.shape
    _refuse_non_finite(ctx, ids, embeddings)
    writer = PartWriter(
        ctx.storage,
        uri=f"{uri}/part-{ctx.grid.rank:05d}",
        format=output.format,
        dtype=output.dtype,
        ids_kind="string" if ctx.nodes.ids == "string" else "int64",
        width=width,
        rows=rows,
    )
    step = max(1, _BATCH_VALUES // width)
    with writer:
        for at in range(0, rows, step):
            writer.write(ids[at : at + step], embeddings[at : at + step].cpu().numpy())
            ctx.work.add("publish", rows=min(step, rows - at))
            ctx.progress("publish", 0.8 * at / rows)
    digest = writer.digest
    verify_part(ctx.storage, uri, digest)
    ctx.progress("publish", 0.9)
    return digest


def _refuse_non_finite(ctx: RunContext, ids: Ids, embeddings: torch.Tensor) -> None:
    """Raise on every rank where any has such a row. Collective: every rank must call."""
    # A row's sum is not finite when any of its values is not; a sum that merely overflowed
    # is distinguished below.
    bad = (~torch.isfinite(embeddings.sum(dim=1))).nonzero().squeeze(1)
    bad = bad[~torch.isfinite(embeddings[bad]).all(dim=1)]
    first: Any = None
    if len(bad):
        first = ids[int(bad[0])]
        first = first.as_py() if hasattr(first, "as_py") else int(first)
    found = [pair for pair in ctx.exchange.all_objects((len(bad), first)) if pair[0]]
    if found:
        raise OutputError(
            f"{sum(n for n, _ in found)} embeddings are NaN or infinite, first node id"
            f" {found[0][1]!r}; nothing was published. Check the model's weights and edge weights."
        )


def describe_features(features: FeatureInput, schema: FeatureSchema) -> dict[str, Any]:
    """For a version's manifest: the columns of the features, in order, and their scaling."""
    found: dict[str, Any] = {"width": schema.width}
    if schema.columns is not None:
        found["columns"] = list(schema.columns)
    elif features.vector_column is not None:
        found["vectorColumn"] = features.vector_column
    if schema.scaling is not None:
        mean, scale = schema.scaling.mean, schema.scaling.scale
        given = {"uri": features.scaling and features.scaling.uri, "mean": mean, "scale": scale}
        found["scaling"] = {name: value for name, value in given.items() if value is not None}
    return found


def publish_version(
    ctx: RunContext,
    order: WorkOrder,
    program: Program,
    clock: Clock,
    parts: list[PartDigest],
    compared: dict[str, Any] | None,
) -> VersionInfo:
    """Write the version's manifest and move ``LATEST``; rank 0 calls, when all parts are written.

    Args:
        compared: what the embeddings were held against and how far they are from it, if so.

    Raises:
        OutputError, StorageError: the manifest or the pointer could not be written.
    """
    spec = ctx.job.spec
    manifest = {
        "job": ctx.job.metadata.name,
        "resultDigest": run_digest(ctx.job),
        "rows": clock.nodes,
        "dim": program.output_width,
        "edges": clock.edges,
        "ids": ctx.nodes.ids,
        "features": describe_features(ctx.nodes.features, order.inputs.schema),
        "format": spec.output.format,
        "dtype": spec.output.dtype,
        "inputs": order.inputs.objects(),
        "model": {"uri": spec.model.uri, "digest": program.digest},
        "reference": compared,
        "grid": ctx.grid.shape.model_dump(),
        "fanout": spec.inference.fanout,
        "seed": spec.inference.seed,
        "parts": [asdict(part) for part in parts],
        "libraries": {
            "embertide": embertide.__version__,
            "torch": torch.__version__,
            "pyarrow": pa.__version__,
            "python": platform.python_version(),
        },
    }
    return publish(
        ctx.storage, spec.output.uri, order.version, manifest, keep=spec.output.keep_versions
    )
