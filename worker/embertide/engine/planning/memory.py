"""Peak memory of each stage: everything that grows with nodes or edges.

The stages follow :mod:`embertide.engine.pipeline`; what is bounded is in a few constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embertide.engine.planning.edge_memory import (
    STRING_BYTES,
    csr_bytes,
    ingesting,
    relations,
    sorting,
    spilled_graph,
    spilled_sorting,
)
from embertide.engine.planning.graph import (
    PlannedGraph,
    PlannedType,
    edge_loads,
    node_loads,
    of_layers,
)
from embertide.engine.planning.inputs import NodeSplits
from embertide.engine.planning.keeping import digest_memory
from embertide.engine.planning.layer_memory import (
    SpilledCosts,
    disk_seconds,
    layers_bytes,
    link_seconds,
    partition_bytes,
    spilled_costs,
)
from embertide.facts.telemetry.estimate import PlannedSpill
from embertide.footprint import FLOAT_BYTES, ID_BYTES, LOCATION_BYTES, Size
from embertide.graph.directory import LOCATED_ROWS
from embertide.io.compare.memory import comparing_bytes, noting_bytes
from embertide.io.readers.pool import are_remote, readers, remote_bytes_arriving, remote_bytes_held
from embertide.io.versions.parts import MOST_WRITERS, count_parts
from embertide.kernels.staging import PINNED_BYTES
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.draw import MOST_IN_EDGES, checking_bytes, rows_to_check
from embertide.program.steps.program import Program
from embertide.spec.result_names import node_type_of

_STAGED = ("csr", "infer", "publish")
"""Stages from which on tensors are copied to a GPU, or from it."""
_OVERHEAD = 20 << 20
"""Connections, allocator: measured, the same for every size."""
_THREAD_BYTES = 18 << 20
"""Buffers of a thread that reads or writes; the first thread keeps none."""
_BUFFERING_THREADS = 2
"""Threads that have buffers, at most; more have not been seen to take more."""
_REMOTE_BYTES = 20 << 20
"""Memory of the client of a remote store (connections, threads), measured."""
_UPLOADED_BYTES = 24 << 20
"""Upper bound for an upload: two parts of 8 MiB in flight, and one that fills or waits; or for what
is read back: six ranges of 4 MiB. A part is read back while the next one is written."""
_ORDER_BYTES = 4
"""A string's place among those received."""
_LOCATED_ROW_BYTES = 40
"""A loaded row while it is announced to its owner: the owner's row, its order, and both as sent."""
TABLE_CHUNK_BYTES = 16 << 20
"""Part of a model's table that is read at a time, by all workers together."""
_TABLE_ROW_BYTES = 40
"""A loaded row while it gets a table's row: its number, its order, both sorted, and as sent."""
_DIRECTORY_BYTES = 1
"""An id's share of the directory of hashes: a half to one, and a 15th of that."""


@dataclass(frozen=True)
class _IdBytes:
    """Bytes of one node's id, by phase.

    Attributes:
        read: as read.
        built: in addition, while all are sorted.
        table: while ids are looked up.
        named: at the owner of the row, with its sampling key.
    """

    read: float
    built: float
    table: float
    named: float


def planned_memory(
    graph: PlannedGraph,
    plan: Plan,
    fanout: Sequence[int] | None,
    *,
    threads: int = 1,
    gpu: bool = False,
    uploads: bool = False,
    compares: bool = False,
    checked_rows: int | None = 0,
    deltas: bool = False,
    digests: bool = False,
) -> dict[str, int]:
    """Bytes of the fullest worker per stage, beyond its imports.

    Args:
        threads: of a worker, each of which reads or writes a part.
        gpu: the layers' tensors are on a GPU (:func:`planned_gpu_memory`), and the buffers that
            stage them are pinned from the first of them on.
        uploads: parts go to a remote store.
        compares: rows are compared with those of the current version.
        checked_rows: the manifest's ``inference.checkedRows``.
        deltas: changes since the current version are written, too.
        digests: rows are digested, and compared with those that were kept; not where edges are on
            disk.
    """
    each = [
        _planned_of_worker(graph, plan, fanout, worker, threads, gpu, uploads, compares, deltas)
        for worker in _fullest_readers(graph)
    ]
    stages = {name: max(stages[name] for stages in each) for name in each[0]}
    stages["infer"] += int(_checking(graph, plan, checked_rows))
    if digests and not plan.target.spills_graph:
        stages["csr"] = max(stages["csr"], _digesting(graph, plan))
    return stages


def _digesting(graph: PlannedGraph, plan: Plan) -> int:
    """Bytes of a worker while rows are digested, when edges are sorted and ids no longer found."""
    spills = bool(plan.target.panel)
    types = [_type_bytes(name, graph, plan.program, 0, spills) for name in graph.types]
    there = sum(of.values + of.dense + of.own for of in types)
    csrs = sum(csr_bytes(relation, size, spills=False) for relation, size in relations(graph))
    return int(there + csrs + digest_memory(plan, graph.size)) + _OVERHEAD


def _checking(graph: PlannedGraph, plan: Plan, wanted: int | None) -> float:
    """Bytes in addition to the layers while rows are computed again: by the largest relation."""
    size, program = graph.size, plan.program
    width = max(program.widths.values())
    peak = 0.0
    for name in program.relations:
        of = size.of_relation(name)
        rows = rows_to_check(wanted, int(of.nodes)) / size.workers
        edges = rows * of.edges / max(1, of.nodes)
        # Rows with self-loops are among them, which in most graphs are hubs.
        hub = min(float(MOST_IN_EDGES), of.edges / size.workers)
        peak = max(peak, checking_bytes(rows, edges, hub, width))
    return peak if wanted != 0 else 0.0


def _fullest_readers(graph: PlannedGraph) -> list[int]:
    """The workers that read the most of a node type or of a relation."""
    size = graph.size
    loads: list[list[float]] = [
        [*map(float, node_loads(of_type, size.workers).rows)] for of_type in graph.types.values()
    ]
    loads += [edge_loads(relation, of).edges for relation, of in relations(graph)]
    return sorted({load.index(max(load)) for load in loads})


def _planned_of_worker(
    graph: PlannedGraph,
    plan: Plan,
    fanout: Sequence[int] | None,
    worker: int,
    threads: int,
    gpu: bool,
    uploads: bool,
    compares: bool,
    deltas: bool,
) -> dict[str, int]:
    """Bytes per stage of the worker of that rank."""
    staged = gpu and bool(plan.target.panel)
    spills = bool(plan.target.panel) and not gpu
    types = [_type_bytes(name, graph, plan.program, worker, spills) for name in graph.types]
    loaded = sum(of_type.loaded for of_type in types)
    inputs = [of_type for of_type in types if of_type.is_input]
    on_disk = plan.target.spills_graph
    csrs = sum(csr_bytes(relation, size, spills=on_disk) for relation, size in relations(graph))
    sort = spilled_sorting(graph, worker) if on_disk else sorting(graph, worker)
    own = sum(of_type.own for of_type in types)
    arranged, program = of_layers(graph, plan), plan.program
    layers, gathering = layers_bytes(arranged, plan, fanout, placed=_placed(types), gpu=gpu), 0.0
    stored = planned_spill(graph, plan, fanout, gpu=True).disk if staged else 0.0
    if arranged.size.grid.feature > 1:
        spilled = spilled_graph(arranged, plan, fanout)
        partitions = sum(partition_bytes(relation, size) for relation, size in relations(graph))
        partitions = partitions if spilled is None else spilled.gathering
        gathering = sum(of_type.values for of_type in inputs) + csrs + partitions
    kept = own + stored + sum(of.dense for of in inputs if plan.target.panel or not of.placed)
    results = _results(graph, program)
    buffering = min(threads, _BUFFERING_THREADS)
    writing = _THREAD_BYTES + _uploading(graph, program) if uploads else 0.0
    writers = 1 if uploads or gpu else min(threads, MOST_WRITERS, count_parts(max(results)))
    buffers, left = buffering * _THREAD_BYTES, (buffering - 1) * _THREAD_BYTES
    # Readers of a remote store have given their buffers back.
    kept_by_readers = left if _is_remote(graph) else buffers
    stages = {
        "features": _loading(types) + max(float(buffers), _fetched_rows(graph, threads)),
        "ingest": loaded + ingesting(graph, worker, threads, buffers, spills=on_disk),
        "csr": loaded + max(sort.peak, max(sort.kept, csrs) + max(own, _locating(graph))) + left,
        "infer": kept + max(gathering, layers.beside_gpu if gpu else layers.on_cpu) + left,
        "publish": own
        + (0.0 if (gpu and not staged) or spills else sum(results))
        + max(
            max(float(kept_by_readers), writing) + (writers - 1) * _THREAD_BYTES,
            _comparing(graph, program, 1 if gpu else threads, deltas) if compares else 0.0,
        ),
    }
    if gpu:
        stages |= {name: stages[name] + PINNED_BYTES for name in _STAGED}
    overhead = _OVERHEAD + (_REMOTE_BYTES if uploads or _is_remote(graph) else 0)
    return {name: int(size_bytes) + overhead for name, size_bytes in stages.items()}


def planned_spill(
    graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None, *, gpu: bool = False
) -> SpilledCosts:
    """What one worker moves to the disk and back, of layers that go over all edges; with ``gpu``
    from host memory to a GPU and back."""
    held = [_type_bytes(name, graph, plan.program, 0, True) for name in graph.types]
    arranged = of_layers(graph, plan)
    on_disk = spilled_graph(arranged, plan, fanout)
    return spilled_costs(plan, arranged.size, placed=_placed(held), graph=on_disk, staged=gpu)


def planned_gpu_memory(graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None) -> int:
    """Bytes of the fullest worker's tensors and non-zeros on its GPU.

    The memory of CUDA, NCCL and torch's allocator is not counted.
    """
    types = [_type_bytes(name, graph, plan.program, 0, False) for name in graph.types]
    return int(layers_bytes(graph, plan, fanout, placed=_placed(types), gpu=True).on_gpu)


@dataclass(frozen=True, kw_only=True)
class _TypeBytes:
    """Bytes of one worker's share of a node type.

    Attributes:
        name: as the program has it.
        is_input: whether the layers read its features.
        placed: whether they are in order from the start, where they are in memory.
        values: of its features.
        dense: of the dense ids of the loaded rows.
        loaded: from its features until the layers: values, dense ids, and what finds ids.
        loading: the same at the peak while it is read.
        own: of the nodes that the worker owns: their ids, and where their features are.
    """

    name: str
    is_input: bool
    placed: bool
    values: float
    dense: float
    loaded: float
    loading: float
    own: float


def _type_bytes(
    name: str, graph: PlannedGraph, program: Program, worker: int, spills: bool
) -> _TypeBytes:
    of_type, size = graph.types[name], graph.size.of_type(name)
    ids, nodes = _id_bytes(of_type, size), size.nodes / size.workers
    has = of_type.node.features is not None
    # Rows stay with the worker that read them, ids go to the owners of their hashes.
    rows = float(node_loads(of_type, size.workers).rows[worker]) if has else nodes
    # On disk they are pages of a file.
    values = 0.0 if spills else float(FLOAT_BYTES) * of_type.splits.width * rows
    dense = ID_BYTES * rows if has else 0.0
    looking_up = max(ids.built, ids.table + (ID_BYTES if has else 0))
    return _TypeBytes(
        name=name,
        is_input=name in program.inputs,
        placed=has and of_type.node.ids == "dense" and size.workers == 1,
        values=values,
        dense=dense,
        loaded=values + dense + ids.table * nodes,
        loading=max(
            values + rows * ids.read + nodes * looking_up,
            values + dense + ids.table * nodes + table_bytes(of_type.splits, rows, nodes),
        ),
        own=(ids.named + (LOCATION_BYTES if has else 0)) * nodes,
    )


def table_bytes(splits: NodeSplits, rows: float, nodes: float) -> float:
    """Bytes that a worker holds while it fills in the columns of the model's tables.

    Args:
        rows: loaded by the worker.
        nodes: of the worker's share of all ids.
    """
    if not splits.tables:
        return 0.0
    numbered = all(table.split.ids_uri is None for table in splits.tables)
    return _TABLE_ROW_BYTES * rows + (0.0 if numbered else ID_BYTES * nodes) + 3 * TABLE_CHUNK_BYTES


def _id_bytes(of_type: PlannedType, size: Size) -> _IdBytes:
    kind = of_type.node.ids
    if kind == "dense":
        # Without features no ids are read.
        read = 0 if of_type.node.features is None else ID_BYTES
        return _IdBytes(read, 0, 0, ID_BYTES)
    if kind == "int64":
        return _IdBytes(ID_BYTES, 2 * ID_BYTES, ID_BYTES + _DIRECTORY_BYTES, 2 * ID_BYTES)
    text, words = STRING_BYTES, 2 * ID_BYTES
    # With one worker, the strings stay where they were read.
    copy = 0 if size.workers == 1 else text
    table = words + _ORDER_BYTES + _DIRECTORY_BYTES + text
    return _IdBytes(text, copy + 2 * words + _ORDER_BYTES, table, text + ID_BYTES)


def _placed(types: list[_TypeBytes]) -> list[str]:
    """The node types whose features are in order from the start, where they are in memory."""
    return [of_type.name for of_type in types if of_type.is_input and of_type.placed]


def _loading(types: list[_TypeBytes]) -> float:
    """Types are read one after another."""
    peak = before = 0.0
    for of_type in types:
        peak = max(peak, before + of_type.loading)
        before += of_type.loaded
    return peak


def _uploading(graph: PlannedGraph, program: Program) -> float:
    """Bytes of parts in flight to a store, or back to be verified."""
    largest = max(_results(graph, program))
    return min(float(_UPLOADED_BYTES) * min(2, count_parts(largest)), largest)


def _comparing(graph: PlannedGraph, program: Program, threads: int, deltas: bool) -> float:
    """Bytes in addition to the results while they are compared with the current version in turn.

    Notes for deltas stay until all results are compared.
    """
    most = noted = 0.0
    for key, name in program.results.items():
        node_type = node_type_of(key)
        kind, nodes = graph.types[node_type].node.ids, graph.size.of_type(node_type).nodes
        own = nodes / graph.size.workers
        most = max(most, comparing_bytes(own, kind, program.widths[name], nodes, threads))
        noted += noting_bytes(own, kind) if deltas else 0.0
    return most + noted


def _results(graph: PlannedGraph, program: Program) -> list[float]:
    """Bytes of each result."""
    return [
        graph.size.of_type(node_type_of(key)).tensor(program.widths[name])
        for key, name in program.results.items()
    ]


def _is_remote(graph: PlannedGraph) -> bool:
    """Whether anything is read from a remote store."""
    types, relations = graph.types.values(), graph.relations.values()
    return any(are_remote(of_type.splits.features) for of_type in types) or any(
        are_remote(relation.splits) for relation in relations
    )


def _fetched_rows(graph: PlannedGraph, threads: int) -> float:
    """Bytes of features in flight from a remote store.

    Less the places of rows that have not arrived by then, in memory that no other process maps: its
    pages are taken as they are touched. Readers free the bytes of a split at its end, and do not
    end together: their requests are answered and their columns decoded some at a time. So they are
    spread over their splits; as the first of k ends, with all of its rows placed, the others have
    placed k-th parts of theirs, (k + 1) / 2 splits together.

    Pages of memory that peers map are taken as it is allocated.
    """
    return max(_fetched_of_type(name, graph, threads) for name in graph.types)


def _fetched_of_type(name: str, graph: PlannedGraph, threads: int) -> float:
    splits, workers = graph.types[name].splits, graph.size.grid.workers
    buffered = remote_bytes_held(splits.features, workers, threads)
    if not buffered:
        return 0.0
    fetched = float(buffered + remote_bytes_arriving(splits.features, buffered))
    if workers > 1 and graph.size.in_place:
        return fetched
    ours = -(-len(splits.features) // workers)
    at_once = min(ours, readers(splits.features, threads))
    last = ours % at_once
    split_values = float(FLOAT_BYTES) * splits.feature_width * splits.feature_rows / workers / ours
    # While most are read, while the last ones are, or the very last one.
    return max(
        fetched - split_values * (last + _unplaced(at_once)),
        fetched * last / at_once - split_values * _unplaced(last),
        fetched / at_once,
    )


def _unplaced(at_once: int) -> float:
    """Rows without their places yet, in splits, as the first of some readers ends."""
    return max(0, at_once - 1) / 2


def _locating(graph: PlannedGraph) -> float:
    """Bytes of the locations of a type's features, and of the rows announced to their owners.

    Large pages of sorted edges are kept for the layers meanwhile.
    """
    if graph.size.workers == 1:
        return 0.0
    rows = max(of_type.splits.rows for of_type in graph.types.values()) / graph.size.workers
    return LOCATION_BYTES * rows + _LOCATED_ROW_BYTES * min(float(LOCATED_ROWS), rows)


def stored_elsewhere(
    graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None, *, gpu: bool = False
) -> PlannedSpill:
    """What one worker has there, and what goes there and back.

    Args:
        fanout: in-edges that each layer samples of a node; None: all of them.
        gpu: it is in host memory, and parts of it are on a GPU; else on disk.
    """
    costs = planned_spill(graph, plan, fanout, gpu=gpu)
    if gpu:
        # Each worker has its own link.
        seconds = link_seconds(costs.read, costs.written)
    else:
        seconds = disk_seconds(costs.read, costs.written) * graph.size.workers
    moved = int(costs.disk), int(costs.read), int(costs.written)
    how = plan.target.spills_graph, costs.largest, int(costs.memory)
    return PlannedSpill(plan.target.panel, *moved, seconds, *how)
