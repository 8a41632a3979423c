"""What each stage holds at its fullest moment: everything that grows with nodes or edges.

The stages follow :mod:`embertide.pipeline`; what is bounded is in a few constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from embertide.footprint import FLOAT_BYTES, ID_BYTES, LOCATION_BYTES, Size
from embertide.planning.inputs import Inputs
from embertide.planning.tensors import tensor_peak
from embertide.primitives.shuffle import round_edges
from embertide.spec.manifest import EmbeddingJob
from embertide.steps.program import Program

_OVERHEAD = 56 << 20
"""Readers' and writers' buffers, connections, allocator: measured, the same for every size."""
_MAPPING_BYTES = 128 << 20
"""At most, of the edges that are read ahead while hashed ids are looked up, and of the rounds."""
_MAPPED_EDGE_BYTES = 64
"""Of an edge among those: its ends as read, their hashes, their places and their dense ids."""
_TEXT_BYTES = 16
"""Of a string id: assumed, since metadata do not say it."""
_OFFSET_BYTES = 8
"""Of where a string begins: large strings."""
_ORDER_BYTES = 4
"""Of where a string is among those received."""
_DIRECTORY_BYTES = 1.5
"""Of an id's share of the directory beside the sorted hashes: one to two bytes."""
_BUILDING_BYTES = 1 / 7
"""Of a node in the set of sources while the remote ones are found."""
_FACTOR_BYTES = 12
"""Of a row: its degree and its two factors of a norm, float32 each."""
_LOCAL_ROW_BYTES = 4
"""Of a row in the local block: the end of its run, int32."""
_REQUEST_BYTES = 4
"""Of a row that a peer asks for: its number, int32."""
_POSITION_BYTES = 4
"""Of a non-zero's position in the CSR, which blocks carry for pair attention: int32."""


@dataclass(frozen=True)
class _IdBytes:
    """Bytes of one node's id, by moment.

    Attributes:
        read: as read.
        built: beside that, while all are sorted.
        table: while ids are looked up.
        named: at the owner of the row, with its sampling key.
    """

    read: float
    built: float
    table: float
    named: float


def planned_memory(
    job: EmbeddingJob, inputs: Inputs, program: Program, size: Size
) -> dict[str, int]:
    """Bytes of the fullest worker per stage, beyond its imports."""
    kind = job.spec.input.nodes[0].ids
    ids, index, weight = _id_bytes(kind, size), size.index_bytes, _weight_bytes(job)
    nodes, edges = size.nodes / size.workers, size.edges / size.workers
    values = float(FLOAT_BYTES) * inputs.width * inputs.feature_rows / size.workers
    placed = kind == "dense" and size.workers == 1
    dense = ID_BYTES * nodes
    loaded = values + dense + ids.table * nodes
    chunks = edges * (2 * index + weight)
    mapping = 0.0 if kind == "dense" else min(float(_MAPPING_BYTES), _MAPPED_EDGE_BYTES * edges)
    csr = edges * (index + weight) + ID_BYTES * nodes
    own = (LOCATION_BYTES + ids.named) * nodes
    kept = own + (0.0 if placed else dense)
    layers = _layers(job, program, size, placed=placed)
    gathering = values + csr + _partition(job, size) if size.feature > 1 else 0.0
    stages = {
        "features": values + nodes * (ids.read + max(ids.built, ids.table + ID_BYTES)),
        "ingest": loaded + chunks + mapping,
        "csr": loaded + max(_sorting(job, size), csr + own),
        "infer": kept + max(gathering, layers),
        "publish": ids.named * nodes + size.tensor(program.output_width),
    }
    return {name: int(size_bytes) + _OVERHEAD for name, size_bytes in stages.items()}


def _id_bytes(kind: str, size: Size) -> _IdBytes:
    if kind == "dense":
        return _IdBytes(ID_BYTES, 0, 0, ID_BYTES)
    if kind == "int64":
        return _IdBytes(ID_BYTES, 2 * ID_BYTES, ID_BYTES + _DIRECTORY_BYTES, 2 * ID_BYTES)
    text, words = _TEXT_BYTES + _OFFSET_BYTES, 2 * ID_BYTES
    # Alone, the strings stay where they were read.
    copy = 0 if size.workers == 1 else text
    table = words + _ORDER_BYTES + _DIRECTORY_BYTES + text
    return _IdBytes(text, copy + 2 * words + _ORDER_BYTES, table, text + ID_BYTES)


def _weight_bytes(job: EmbeddingJob) -> int:
    """Of an edge's weight."""
    return FLOAT_BYTES if job.spec.input.edges[0].columns.weight is not None else 0


def _sorting(job: EmbeddingJob, size: Size) -> float:
    """Bytes from the edges as they were read to the CSR of our sub-range."""
    index, weight = size.index_bytes, _weight_bytes(job)
    nodes, edges = size.nodes / size.workers, size.edges / size.workers
    keys = edges * (ID_BYTES + weight)
    packing = keys + edges * (2 * index + weight)
    if size.workers > 1:
        sent = min(float(round_edges(size.workers)), edges)
        packing += 4 * sent * (ID_BYTES + weight)
    sorting = keys + edges * index + ID_BYTES * nodes
    if job.spec.input.edges[0].self_loops != "add":
        return max(packing, sorting)
    looping = (2 * edges + nodes) * (index + weight) + 2 * ID_BYTES * nodes
    return max(packing, sorting, looping)


def _partition(job: EmbeddingJob, size: Size) -> float:
    """Bytes of a partition's CSR."""
    edges, rows = size.edges / size.graph, size.nodes / size.graph
    return edges * (size.index_bytes + _weight_bytes(job)) + ID_BYTES * rows


def _layers(job: EmbeddingJob, program: Program, size: Size, *, placed: bool) -> float:
    """Bytes of the layer graph and of the tensors in the fullest moment of the layers."""
    fanout, whole = job.spec.inference.fanout, 0.0
    if fanout != "full":
        whole = _partition(job, size) / size.feature
        size = replace(size, edges=min(size.edges, size.nodes * max(fanout)))
    index, weight, needs = size.index_bytes, _weight_bytes(job), program.edge_needs()
    edges, rows = size.edges / size.graph, size.nodes / size.graph
    graph, building = _partition(job, size) + _FACTOR_BYTES * rows, 0.0
    block = edges * (index + weight)
    if size.graph > 1:
        positions = _POSITION_BYTES * edges if needs.positions else 0.0
        graph += block + positions + (_LOCAL_ROW_BYTES * rows) + _REQUEST_BYTES * size.unique()
        graph += size.pattern(max(program.widths.values()))
        building = _BUILDING_BYTES * size.nodes
        if not needs.again:
            graph -= edges * index
            building += edges * index
    if any(step.pairs for step in program.steps) and size.workers > 1:
        graph += size.edges / size.workers * (index + weight + _POSITION_BYTES)
    views = [step.edges for step in program.steps if step.edges is not None]
    if any(view.loops != "keep" for view in views):
        graph += rows * (index + weight) + _partition(job, size)
        if not needs.again:
            graph -= edges * index
            building += edges * index
    peak = tensor_peak(program, size, placed=placed, building=building, block=block)
    return whole + graph + peak
