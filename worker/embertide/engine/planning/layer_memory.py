"""Memory of the layers: the layer graphs of all relations, and the tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from embertide.engine.planning.edge_memory import spilled_graph
from embertide.engine.planning.graph import PlannedGraph, PlannedRelation
from embertide.engine.planning.spilled import spilled_costs
from embertide.footprint import ID_BYTES, GraphSize, Size
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.plan import Plan
from embertide.program.steps.base import Step
from embertide.program.steps.dry_run import DryRun
from embertide.program.steps.program import Program

_BUILDING_BYTES = 1 / 7
"""A node in the set of sources while the remote ones are looked up."""
_FACTOR_BYTES = 12
"""A row's degree and its two factors of a norm, float32 each."""
_LOCAL_ROW_BYTES = 4
"""The end of a row's run in the local block, int32."""
_REQUEST_BYTES = 4
"""The number of a row that a peer asks for, int32."""
_POSITION_BYTES = 4
"""A non-zero's position in the CSR, which blocks carry for pair attention: int32."""
_FILLING_BYTES = 32
"""An edge while loops are filled in: its row, which edges are kept, and where they go: int64."""


def partition_bytes(relation: PlannedRelation, size: Size) -> float:
    """Bytes of a partition's CSR."""
    edges, rows = size.edges / size.graph, size.nodes / size.graph
    return edges * (size.index_bytes + relation.weight_bytes) + ID_BYTES * rows


@dataclass(frozen=True, kw_only=True)
class LayersBytes:
    """Bytes of the layers at their peak.

    Attributes:
        graphs: of the layer graphs, without the blocks; on the CPU whatever the device.
        building: in addition while one of them is built, on the CPU too.
        blocks: of the non-zeros, cut by where their sources are.
        copies: of non-zeros and of factors that are among ``graphs``, as a GPU has them.
        tensors: of the tensors, and of buffers while they are made.
    """

    graphs: float
    building: float
    blocks: float
    copies: float
    tensors: float

    @property
    def on_cpu(self) -> float:
        """Bytes of a worker without a GPU."""
        return self.graphs + self.blocks + self.tensors

    @property
    def beside_gpu(self) -> float:
        """Bytes on the CPU of a worker with a GPU, where blocks are cut."""
        return self.graphs + self.building + self.blocks

    @property
    def on_gpu(self) -> float:
        """Bytes on the GPU."""
        return self.blocks + self.copies + self.tensors


def layers_bytes(
    graph: PlannedGraph,
    plan: Plan,
    fanout: Sequence[int] | None,
    *,
    placed: Sequence[str],
    gpu: bool = False,
) -> LayersBytes:
    """Bytes of the layer graphs and of the tensors at the peak of the layers.

    Args:
        graph: on the grid that computes the layers.
        fanout: in-edges that each layer samples of a node; None: all of them.
        placed: node types whose features are in order from the start.
        gpu: layers are computed on a GPU.
    """
    whole, size, program = 0.0, graph.size, plan.program
    on_disk = spilled_graph(graph, plan, fanout)
    if fanout is not None and on_disk is not None:
        every = map(size.of_relation, graph.relations)
        whole = sum(ID_BYTES * of_all.nodes / of_all.workers for of_all in every)
    elif fanout is not None:
        for name, relation in graph.relations.items():
            of_all = size.of_relation(name)
            whole += partition_bytes(relation, of_all) / of_all.feature
            whole += relation.feature_bytes * of_all.edges / of_all.workers
        most = max(fanout)
        sampled = {name: size.of_relation(name, most).edges for name in size.edges}
        graph = replace(graph, size=replace(size, edges=sampled))
    size, grid = graph.size, graph.size.grid
    if on_disk is not None:
        # In memory are the ends of rows alone.
        graph = replace(graph, size=replace(size, edges=dict.fromkeys(size.edges, 0)))
    costs = {name: _layer_graph(graph, program, name) for name in graph.relations}
    patterns = sum(_tiles(graph, program, names) for names in _together(program, tiles=True))
    patterns += sum(_pairs(graph, program, names) for names in _together(program, tiles=False))
    patterns += 0.0 if on_disk is None else on_disk.requests
    building = {name: cost.building for name, cost in costs.items()}
    block = {name: cost.block for name, cost in costs.items()}
    if plan.target.panel:
        peak = spilled_costs(
            plan, size, placed=placed, building=building, block=block, graph=on_disk, staged=gpu
        ).memory
    else:
        peak = tensor_peak(plan, size, placed=placed, building=building, block=block)
    return LayersBytes(
        graphs=whole + sum(cost.graph for cost in costs.values()),
        building=max((cost.building for cost in costs.values()), default=0.0),
        blocks=patterns,
        copies=sum(
            (cost.block if grid.graph == 1 else 0.0) + cost.factors for cost in costs.values()
        ),
        tensors=peak,
    )


@dataclass(frozen=True, kw_only=True)
class _GraphBytes:
    """Bytes of one worker's layer graph of a relation.

    Attributes:
        graph: of what stays.
        building: in addition, until it is built.
        block: of all its non-zeros, cut into blocks.
        factors: of its rows, which are among what stays.
    """

    graph: float
    building: float
    block: float
    factors: float


def _layer_graph(graph: PlannedGraph, program: Program, name: str) -> _GraphBytes:
    relation, size = graph.relations[name], graph.size.of_relation(name)
    index, weight, needs = size.index_bytes, relation.weight_bytes, program.edge_needs(name)
    edges, rows = size.edges / size.graph, size.nodes / size.graph
    columns, building = edges * index, 0.0
    factors = _FACTOR_BYTES * rows
    kept = partition_bytes(relation, size) + factors
    if size.graph > 1:
        building = 0.0 if size.in_place else _BUILDING_BYTES * size.columns
        if not needs.again:
            kept, building = kept - columns, building + columns
    steps = _over(program, name)
    features, filling = _features(relation, size, steps)
    kept, building = kept + features, building + filling
    if any(step.edges.loops != "keep" for step in steps if step.edges is not None):
        kept += rows * (index + weight) + partition_bytes(relation, size)
        if not needs.again:
            kept, building = kept - columns, building + columns
    block = edges * (index + weight)
    return _GraphBytes(graph=kept, building=building, block=block, factors=factors)


def _features(relation: PlannedRelation, size: Size, steps: list[Step]) -> tuple[float, float]:
    """Bytes of the features of our sub-range's edges, and in addition while loops are filled in.

    Steps with other self-loops have their own copy.
    """
    edges, rows = size.edges / size.workers, size.nodes / size.workers
    views = [step.edges for step in steps if step.edges is not None and step.edge_columns]
    kept = own = relation.feature_bytes * edges if views else 0.0
    copies = {view.loops for view in views} - {"keep"}
    for loops in copies:
        kept += own + (relation.feature_bytes * rows if loops != "none" else 0.0)
    return kept, own + _FILLING_BYTES * edges if copies else 0.0


def _over(program: Program, relation: str) -> list[Step]:
    """The steps over the edges of a relation."""
    return [
        step for step in program.steps if step.edges is not None and step.edges.relation == relation
    ]


def _together(program: Program, *, tiles: bool) -> list[tuple[str, ...]]:
    """The relations whose sources are looked up together, once for each way of it.

    Args:
        tiles: for the edges of partitions; else whole rows for those of sub-ranges.
    """
    reads = [step for step in program.steps if step.edges is not None]
    wanted = [step for step in reads if (step.tiles or not step.pairs if tiles else step.pairs)]
    return list(dict.fromkeys(_sources_with(program, step) for step in wanted))


def _sources_with(program: Program, step: Step) -> tuple[str, ...]:
    """The relations whose sources are looked up with those of a step over edges."""
    if step.out in program.groups:
        return program.together(step.out)
    return () if step.edges is None else (step.edges.relation,)


def _tiles(graph: PlannedGraph, program: Program, together: tuple[str, ...]) -> float:
    """Bytes of the blocks of relations whose sources are looked up together, and of requests."""
    if graph.size.grid.graph == 1:
        return 0.0
    union, widest = graph.size.of_relations(together), max(program.widths.values())
    blocks = 0.0 if union.in_place else _REQUEST_BYTES * union.unique()
    for name in together:
        relation, size = graph.relations[name], graph.size.of_relation(name)
        # In place, non-zeros stay in the order of the CSR, and its row ends are theirs.
        cut = not size.in_place
        positions = _POSITION_BYTES if cut and program.edge_needs(name).positions else 0
        edge = size.index_bytes + relation.weight_bytes + positions
        rows = _LOCAL_ROW_BYTES * size.nodes / size.graph if cut else 0.0
        blocks += edge * size.edges / size.graph + rows
        blocks += size.pattern(widest)
    return blocks


def _pairs(graph: PlannedGraph, program: Program, together: tuple[str, ...]) -> float:
    """Bytes of the blocks of sub-ranges over whole rows."""
    if graph.size.workers == 1:
        return 0.0
    if graph.size.reads_all and not any(program.edge_needs(name).messages for name in together):
        return 0.0
    blocks = 0.0
    for name in together:
        relation, size = graph.relations[name], graph.size.of_relation(name)
        placed = not size.in_place and program.edge_needs(name).placed(pairs=True)
        edge = size.index_bytes + relation.weight_bytes + _POSITION_BYTES * placed
        blocks += edge * size.edges / size.workers
    return blocks


def tensor_peak(
    plan: Plan,
    size: GraphSize,
    *,
    placed: Collection[str],
    building: dict[str, float],
    block: dict[str, float],
) -> float:
    """Peak bytes of the tensors that are alive during the layers.

    Args:
        placed: node types whose features are in order from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
    """
    dry = DryRun(plan.program, size, placed, dict(building), block)
    return dry.to_results((with_placed(plan, placed) if placed else plan).ops).peak
