"""How a worker's memory grows with its rows and edges: a limit for the cuts of the rows.

A plan gives every worker the same rows and edges. Rows are cut by work, not evenly: where ids are
in the order of degrees, a worker with few edges would have more than its share of the rows. By how
much is known when edges are counted, but the memory of a container is requested before that. So the
plan is fixed, and rows are cut to fit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from embertide.engine.planning.graph import PlannedGraph
from embertide.engine.planning.memory import planned_gpu_memory, planned_memory
from embertide.program.plans.plan import Plan
from embertide.spec.relations import Relation

EVEN = 1.1
"""Share of the plan that the fullest worker may take, since its rows and edges may be more."""
_STEP = 1 / 8
"""Share of nodes or edges that a plan is given more of, to see how much it grows."""
_OWNING = ("csr", "infer", "publish")
"""Stages in which a worker holds the rows and edges that it owns, not those that it read."""
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Growth:
    """Memory of a stage for a worker's rows of a node type and the edges into them.

    Attributes:
        row_bytes: for each row.
        edge_bytes: for each edge, on average over the relations that lead to the type.
        most_bytes: for all of them, at most.
    """

    row_bytes: float
    edge_bytes: float
    most_bytes: float

    def share(self, rows: _Floats, edges: _Floats) -> float:
        """Share of ``most_bytes`` that the fullest of workers with so many rows and edges takes."""
        taken = self.row_bytes * rows + self.edge_bytes * edges
        return float(taken.max()) / self.most_bytes


def growths(
    graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None, *, gpu: bool
) -> dict[str, list[Growth]]:
    """Node type, as in the manifest -> the memory of its rows and edges, stage by stage.

    The part of a stage's peak that does not grow is divided among the types by what they take
    there.
    """
    planned, limits = _stages(graph, plan, fanout, gpu)

    def share(types: list[str], relations: list[str]) -> _Floats:
        """Bytes by stage, for one worker, that grow with these types and relations."""
        larger = _larger(graph, types, relations)
        return np.maximum(0.0, _stages(larger, plan, fanout, gpu)[0] - planned) / _STEP

    into = {
        name: [relation for relation in graph.relations if _target(relation) == name]
        for name in graph.types
    }
    rows = {name: share([name], []) for name in graph.types}
    edges = {name: share([], relations) for name, relations in into.items()}
    whole = np.maximum(1.0, sum(rows[name] + edges[name] for name in graph.types))
    factor = 1 + (limits - planned) / whole
    by_type = {}
    for name, of_type in graph.types.items():
        count = max(1, sum(graph.size.edges[relation] for relation in into[name]))
        row_bytes = rows[name] * graph.size.workers / max(1, graph.size.nodes[name])
        edge_bytes = edges[name] * graph.size.workers / count
        stages = zip(row_bytes, edge_bytes, (rows[name] + edges[name]) * factor, strict=True)
        growing = [Growth(*map(float, stage)) for stage in stages if stage[-1] > 0]
        by_type[of_type.node.name] = growing
    return by_type


def _stages(
    graph: PlannedGraph, plan: Plan, fanout: Sequence[int] | None, gpu: bool
) -> tuple[_Floats, _Floats]:
    """Bytes of each stage, the GPU's last, and what each may take."""
    memory = planned_memory(graph, plan, fanout, gpu=gpu)
    planned, limits = [memory[stage] for stage in _OWNING], [max(memory.values())] * len(_OWNING)
    if gpu:
        on_gpu = planned_gpu_memory(graph, plan, fanout)
        planned, limits = [*planned, on_gpu], [*limits, on_gpu]
    return np.array(planned, float), EVEN * np.array(limits, float)


def _larger(graph: PlannedGraph, types: list[str], relations: list[str]) -> PlannedGraph:
    """The graph with more nodes of some types, or more edges of some relations."""
    size = graph.size
    nodes = {name: _more(count, name in types) for name, count in size.nodes.items()}
    edges = {name: _more(count, name in relations) for name, count in size.edges.items()}
    return replace(graph, size=replace(size, nodes=nodes, edges=edges))


def _more(count: int, grows: bool) -> int:
    return round(count * (1 + _STEP)) if grows else count


def _target(relation: str) -> str:
    """The node type that a relation leads to; a program of one type names neither."""
    return Relation.parse(relation).destination if relation else ""
