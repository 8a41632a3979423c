"""Whether the inputs have as many edges and nodes as the job demands, before anything is computed.

Rows of parquet and npy are in their metadata, so they are checked when a run is planned. Lines of
text are known once they were read, and checked then. The last version's manifest says how many
rows were read for it, which is what ``maxShrink`` compares with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embertide.engine.planning.inputs import Inputs, rows_of
from embertide.errors import InputTooSmall
from embertide.io.storage.protocol import Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.matching import percent_share

TEXT_FORMATS = ("csv", "tsv")
_REMEDY = (
    "Nothing was computed, and the current version stays. If the input is complete, run a job with"
    " another limit"
)


def rows_are_counted(edge: EdgeInput) -> bool:
    """Whether the number of edges is known only once they are read: of text, of some rows."""
    return edge.format in TEXT_FORMATS or edge.where is not None


@dataclass(frozen=True)
class ReadRows:
    """Rows that were read of each edge type, and nodes of each type.

    Attributes:
        edges: relation, as text -> rows of its objects, before directions, duplicates and
            self-loops are treated; relations whose rows are not known are left out.
        nodes: node type -> nodes.
        version: that they were read for; "" for the run that is planned.
    """

    edges: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)
    version: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a version's manifest has it."""
        return {"edges": dict(self.edges), "nodes": dict(self.nodes)}


def planned_rows(job: EmbeddingJob, inputs: Inputs) -> ReadRows:
    """What the metadata of the inputs says; text does not say how many edges it has.

    Optional relations without objects are left out: an empty one is what their input allows.
    """
    data = job.spec.input
    edges = {
        str(edge.relation): rows_of(inputs.by_edges[str(edge.relation)])
        for edge in data.edges
        if not rows_are_counted(edge) and str(edge.relation) not in inputs.absent
    }
    return ReadRows(
        edges, {node.name: inputs.by_nodes[node.name].count(node) for node in data.nodes}
    )


def check_sizes(
    storage: Storage, job: EmbeddingJob, inputs: Inputs, warn: Callable[[str], None]
) -> None:
    """Refuse a job whose inputs have too few edges or nodes, as far as their metadata says.

    Args:
        warn: called where the last version does not say how many edges were read for it.

    Raises:
        InputTooSmall: names the type, its number, and the limit.
        StorageError, OutputError: the last version's manifest cannot be read.
    """
    rows = planned_rows(job, inputs)
    check_least(job, rows)
    if job.spec.input.max_shrink is not None:
        check_shrink(job, rows, last_rows(storage, job), warn)


def check_least(job: EmbeddingJob, rows: ReadRows) -> None:
    """Refuse fewer edges than ``minEdges``, or fewer nodes than ``minNodes``.

    Raises:
        InputTooSmall: see :func:`check_sizes`.
    """
    data = job.spec.input
    for at, edge in enumerate(data.edges):
        count = rows.edges.get(str(edge.relation))
        if edge.min_edges is not None and count is not None and count < edge.min_edges:
            raise InputTooSmall(
                f"{edge.location} has {count:,} edges, spec.input.edges[{at}].minEdges is"
                f" {edge.min_edges:,}. {_REMEDY}"
            )
    for at, node in enumerate(data.nodes):
        count = rows.nodes.get(node.name)
        if node.min_nodes is not None and count is not None and count < node.min_nodes:
            raise InputTooSmall(
                f"node type {node.name!r} has {count:,} nodes ({node.listed_in}),"
                f" spec.input.nodes[{at}].minNodes is {node.min_nodes:,}. {_REMEDY}"
            )


def check_shrink(
    job: EmbeddingJob, rows: ReadRows, last: ReadRows | None, warn: Callable[[str], None]
) -> None:
    """Refuse edges or nodes that are fewer than the last version's by more than ``maxShrink``.

    Args:
        last: what was read for the last version; None where there is none.

    Raises:
        InputTooSmall: see :func:`check_sizes`.
    """
    limit = job.spec.input.max_shrink
    if limit is None or last is None:
        return
    if missing := sorted(set(rows.edges) - set(last.edges)):
        warn(
            f"spec.input.maxShrink: version {last.version} does not say how many rows were read of"
            f" {', '.join(missing)}, which are not compared"
        )
    for kind, now, before in (
        ("edges", rows.edges, last.edges),
        ("nodes", rows.nodes, last.nodes),
    ):
        for name in now.keys() & before.keys():
            if now[name] < before[name] * (1 - percent_share(limit)):
                raise InputTooSmall(_shrunk(kind, name, now[name], before[name], last, limit))


def _shrunk(kind: str, name: str, now: int, before: int, last: ReadRows, limit: str) -> str:
    fewer = 100 * (before - now) / before
    return (
        f"the input has {now:,} {kind} of type {name!r}, {fewer:.1f}% fewer than the {before:,} of"
        f" the last version, {last.version}; spec.input.maxShrink is {limit}. {_REMEDY}"
    )


def last_rows(storage: Storage, job: EmbeddingJob) -> ReadRows | None:
    """What was read for the current version; None where nothing was published yet.

    A version of an earlier release says only how many embeddings it has, one for each node.

    Raises:
        StorageError, OutputError: its manifest cannot be read.
    """
    from embertide.io.versions.manifest import read_manifest, types_in
    from embertide.io.versions.pointer import read_pointer

    uri = job.spec.published_uri
    pointer = read_pointer(storage, uri)
    if pointer is None:
        return None
    manifest, _ = read_manifest(storage, uri, pointer.version)
    names = [node.name for node in job.spec.input.nodes]
    published = {of_type.name or names[0]: of_type.rows for of_type in types_in(manifest)}
    read = manifest.get("read") or {}
    return ReadRows(read.get("edges") or {}, read.get("nodes") or published, pointer.version)
