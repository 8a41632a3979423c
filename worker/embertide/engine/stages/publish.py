"""Embeddings out: every rank writes its rows, then the version becomes visible at once.

Parts are written under the version's own prefix, read back and verified by their writers;
only then does rank 0 write the version's manifest and move the pointer. Until that moment
readers see the previous version, whatever happens here.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist

from embertide._version import __version__
from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.order import WorkOrder
from embertide.errors import EmbertideError, OutputError
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.io.readers.pool import map_splits
from embertide.io.versions.catalog import VersionInfo
from embertide.io.versions.manifest import together
from embertide.io.versions.parts import MOST_WRITERS, PartDigest, PartDtype, PartWriter, count_parts
from embertide.io.versions.publish import publish
from embertide.kernels.ids import Ids
from embertide.program.steps import Program
from embertide.spec.nodes import NodeInput
from embertide.spec.result_names import label_of, name_of, node_type_of
from embertide.spec.schemes import is_local

_BATCH_VALUES = 1 << 20


class PeerFailed(dist.DistError):
    """Another rank could not write its parts."""


@dataclass(frozen=True)
class ResultRows:
    """Our rows of one result.

    Attributes:
        key: of the result, by the manifest's name of the node type, which is "" in a graph of one.
        ids: original ids of our sub-range.
        embeddings: [N/(P*M), D'] float32.
    """

    node: NodeInput
    key: str
    ids: Ids
    embeddings: torch.Tensor

    @property
    def folder(self) -> str:
        """Where the parts go within the version; "" for a version of one result."""
        return label_of(self.key)

    @property
    def width(self) -> int:
        """D', the length of an embedding."""
        return self.embeddings.shape[1]

    def part(self, rank: int, number: int, count: int) -> str:
        """The name, within the version, of a worker's part of so many."""
        name = f"part-{rank:05d}" if count == 1 else f"part-{rank:05d}-{number:05d}"
        return f"{self.folder}/{name}" if self.folder else name

    @property
    def described(self) -> str:
        """For messages: of which of several node types and results."""
        of_type = f" of node type {self.node.name!r}" if node_type_of(self.key) else ""
        name = name_of(self.key)
        return f"{of_type}{f' in result {name!r}' if name else ''}"


def write_parts(ctx: RunContext, uri: str, results: Sequence[ResultRows]) -> list[list[PartDigest]]:
    """Write our rows of each result; for each the digests of all ranks' parts, in rank order.

    An error of ours counts only if no rank is lost: when a worker dies, its pod removes the
    unfinished version, and the ranks that still write find their parts gone. They report the
    lost rank, not the missing part. Collective: every rank must call.

    Raises:
        OutputError, StorageError: a part of ours could not be written, see :func:`write_rows`.
        PeerFailed: another rank's could not.
    """
    failed: EmbertideError | None = None
    own: dict[str, Any]
    try:
        # All results first: it is collective, and a rank that cannot write stops here.
        for rows in results:
            _refuse_non_finite(ctx, rows)
        shares = ctx.parts([rows.embeddings.numel() for rows in results])
        written = [
            write_rows(share, uri, rows) for share, rows in zip(shares, results, strict=True)
        ]
        own = {"parts": [[asdict(part) for part in parts] for parts in written]}
        ctx.delivered()
    except EmbertideError as error:
        own, failed = {"error": str(error)}, error
    answers = ctx.exchange.all_objects(own)
    if failed is not None:
        raise failed
    by_rank = [_parts_of(rank, answer) for rank, answer in enumerate(answers)]
    return [list(chain.from_iterable(of_result)) for of_result in zip(*by_rank, strict=True)]


def _parts_of(rank: int, answer: dict[str, Any]) -> list[list[PartDigest]]:
    if "error" in answer:
        raise PeerFailed(f"worker {rank}: {answer['error']}")
    return [[PartDigest(**part) for part in parts] for parts in answer["parts"]]


def write_rows(ctx: RunContext, uri: str, of: ResultRows) -> list[PartDigest]:
    """Write and verify our rows of a type, in as many parts as :func:`count_parts` says.

    To local files as many at once as there are threads: each is hashed by one, which takes longer
    than the disk. To a remote store parts are written one after the other, and so are those from a
    GPU, whose staging buffers exist once; then each is read back while the next ones are written.

    Args:
        uri: of the version.

    Raises:
        OutputError: not writable, or not as written.
    """
    writing = _Writing(ctx, uri, of)
    if is_local(uri) and ctx.device.type == "cpu":
        return map_splits(writing.parts, writing.write_whole, min(ctx.threads, MOST_WRITERS))
    return _write_in_turn(writing)


def _write_in_turn(writing: _Writing) -> list[PartDigest]:
    """Part after part, each of them read back by another thread while the next ones are written."""
    pool = ThreadPoolExecutor(1, "verify")
    checks: list[Future[PartDigest]] = []
    try:
        for part in writing.parts:
            for check in checks:
                if check.done():
                    check.result()
            checks.append(pool.submit(writing.verified, writing.write(part)))
        return [check.result() for check in checks]
    finally:
        pool.shutdown(cancel_futures=True)


class _Writing:
    """Our rows of a type while they are written into parts; several threads write, a part each.

    Attributes:
        parts: the name of each without extension, its first row, and the one after its last.
    """

    def __init__(self, ctx: RunContext, uri: str, of: ResultRows) -> None:
        self._ctx, self._uri, self._of = ctx, uri, of
        self._rows, width = of.embeddings.shape
        self._dtype: PartDtype = ctx.job.spec.output.dtype
        count = count_parts(self._rows * width * np.dtype(self._dtype).itemsize)
        bounds = [self._rows * number // count for number in range(count + 1)]
        names = [of.part(ctx.grid.rank, number, count) for number in range(count)]
        self.parts = list(zip(names, bounds, bounds[1:], strict=False))
        self._done, self._counting = 0, threading.Lock()

    def write_whole(self, part: tuple[str, int, int]) -> PartDigest:
        """Write one, and read it back."""
        return self.verified(self.write(part))

    def verified(self, written: PartWriter) -> PartDigest:
        """Read a written one back."""
        written.verify()
        return written.digest.within(self._of.folder)

    def write(self, part: tuple[str, int, int]) -> PartWriter:
        """Write one."""
        name, first, last = part
        ids, embeddings = self._of.ids[first:last], self._of.embeddings[first:last]
        rows, width = embeddings.shape
        writer = PartWriter(
            self._ctx.storage,
            uri=f"{self._uri}/{name}",
            format=self._ctx.job.spec.output.format,
            dtype=self._dtype,
            ids_kind="string" if self._of.node.ids == "string" else "int64",
            width=width,
            rows=rows,
            keys=self._of.node.ids,
        )
        step = max(1, _BATCH_VALUES // width)
        with writer:
            batches = self._ctx.exchange.staging.batches(embeddings, step)
            for at, batch in zip(range(0, rows, step), batches, strict=True):
                writer.write(ids[at : at + step], batch.numpy())
                self._progress(len(batch))
        return writer

    def _progress(self, rows: int) -> None:
        with self._counting:
            self._done += rows
            self._ctx.work.add("publish", rows=rows)
            self._ctx.progress("publish", 0.9 * self._done / self._rows)


def _refuse_non_finite(ctx: RunContext, of: ResultRows) -> None:
    """Raise on every rank where any has such a row. Collective: every rank must call."""
    ids, embeddings = of.ids, of.embeddings
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
            f"{sum(n for n, _ in found)} embeddings{of.described} are NaN or infinite, first node"
            f" id {found[0][1]!r}; nothing was published. Check the model's weights and edge"
            " weights."
        )


def describe_features(node: NodeInput, schema: FeatureSchema | None) -> dict[str, Any] | None:
    """For a version's manifest: the columns of the features, in order, and their scaling.

    None for a node type without features.
    """
    features = node.features
    if features is None or schema is None:
        return None
    found: dict[str, Any] = {"width": schema.width}
    if schema.columns is not None:
        found["columns"] = list(schema.columns)
    if features.vector_column is not None:
        found["vectorColumn"] = features.vector_column
    if schema.scaling is not None:
        mean, scale = schema.scaling.mean, schema.scaling.scale
        given = {"uri": features.scaling and features.scaling.uri, "mean": mean, "scale": scale}
        found["scaling"] = {name: value for name, value in given.items() if value is not None}
    return found


@dataclass(frozen=True)
class WrittenResult:
    """One result in a version, as its manifest describes it.

    Attributes:
        key: by the manifest's name of the node type, which is "" in a graph of one.
        nodes: N.
        width: D', the length of an embedding.
        parts: of all ranks.
        compared: the reference, and how far the embeddings are from it, where there is one.
        delta: against the version before; None where the job wants none.
    """

    key: str
    node: NodeInput
    nodes: int
    width: int
    parts: list[PartDigest]
    compared: dict[str, Any] | None
    delta: dict[str, Any] | None = None

    def to_json(self, schema: FeatureSchema | None) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "rows": self.nodes,
            "dim": self.width,
            "ids": self.node.ids,
            "features": describe_features(self.node, schema),
            "reference": self.compared,
            "parts": [asdict(part) for part in self.parts],
            **({} if self.delta is None else {"delta": self.delta}),
        }


def _tables_of(inputs: Inputs) -> dict[str, Any]:
    """The field ``tables``, where inputs are tables."""
    return {"tables": [asdict(table) for table in inputs.tables]} if inputs.tables else {}


def publish_version(
    ctx: RunContext,
    order: WorkOrder,
    program: Program,
    digest: str,
    results: list[WrittenResult],
    trust: dict[str, Any],
    held: list[str],
    scores: dict[str, Any],
) -> VersionInfo:
    """Write the version's manifest and move ``LATEST``; rank 0 calls, when all parts are written.

    Args:
        digest: of the job as its manifest has it.
        trust: what the manifest has of the comparison with the current version, of the gate and of
            the self-check.
        held: why ``LATEST`` stays where it is; [] where it moves.
        scores: what the manifest has of scores of pairs; {} without.

    Raises:
        OutputError, StorageError: the manifest or the pointer could not be written.
    """
    spec, schemas, graph = ctx.job.spec, order.inputs.by_nodes, ctx.graph_facts
    described = {
        written.key: written.to_json(schemas[written.node.name].schema) for written in results
    }
    manifest = {
        "job": ctx.job.metadata.name,
        "jobDigest": digest,
        "follows": asdict(order.follows),
        **together(described),
        "edges": graph.edges,
        "read": graph.read,
        **({"omissions": graph.omissions.to_json()} if graph.omissions else {}),
        **trust,
        **({"scores": scores} if scores else {}),
        "format": spec.output.format,
        "dtype": spec.output.dtype,
        "inputs": order.inputs.objects(),
        **_tables_of(order.inputs),
        "model": spec.model.stated | {"digest": program.digest},
        "grid": ctx.grid.shape.model_dump(),
        "fanout": spec.inference.fanout,
        "seed": spec.inference.seed,
        "rowType": spec.inference.rows,
        "libraries": {
            "embertide": __version__,
            "torch": torch.__version__,
            "pyarrow": pa.__version__,
            "python": platform.python_version(),
        },
    }
    keep = spec.output.keep_versions
    return publish(ctx.storage, spec.published_uri, order.version, manifest, keep, held)
