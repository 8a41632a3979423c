"""The graph that a plan is made for: its node types and relations, with what is read of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from embertide.engine.planning.inputs import Inputs, NodeSplits
from embertide.engine.planning.matching import match_relations, match_types, narrow
from embertide.engine.planning.sizes import TEXT_FORMATS, rows_are_counted
from embertide.footprint import FLOAT_BYTES, GraphSize, Size
from embertide.graph.shuffle import histogram_size, round_edges
from embertide.io.readers.splits import Shares, Split
from embertide.kernels.edge_sort import bucket_count
from embertide.layouts import ROW_TYPES
from embertide.program.plans.plan import Plan
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EdgeInput, EmbeddingJob, NodeInput
from embertide.spec.relations import Relation

_TEXT_BYTES_PER_EDGE = 16


@dataclass(frozen=True, kw_only=True)
class PlannedType:
    """A node type that a run reads."""

    node: NodeInput
    splits: NodeSplits

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self.splits.count(self.node)


@dataclass(frozen=True, kw_only=True)
class PlannedRelation:
    """A relation that a run builds a graph of; two may come from the same files.

    Attributes:
        shares: what each worker reads.
        edges: how many there are, after direction is applied.
        exact: whether that is known; it is guessed from the size of text, and where the manifest
            has edges changed.
        features: of each edge, that the run reads.
    """

    relation: Relation
    edge: EdgeInput
    shares: Shares
    edges: int
    exact: bool
    features: int

    @property
    def splits(self) -> Sequence[Split]:
        """What is read, by all workers."""
        return self.shares.splits

    @property
    def weight_bytes(self) -> int:
        """Bytes of an edge's weight."""
        return FLOAT_BYTES if self.edge.columns.weight is not None else 0

    @property
    def feature_bytes(self) -> int:
        """Bytes of an edge's features, which only the owner of its destination has."""
        return FLOAT_BYTES * self.features

    @property
    def carried_bytes(self) -> int:
        """Bytes of an edge's weight and features."""
        return self.weight_bytes + self.feature_bytes


@dataclass(frozen=True, kw_only=True)
class PlannedGraph:
    """What a run of a program reads, in the order of the manifest.

    Attributes:
        types: the program's name of a node type -> the type; those that only edges lead to have
            the manifest's.
        relations: the program's name of a relation -> the relation.
        size: how many there are of each, by the same names.
        several: whether they are called by their names.
    """

    types: dict[str, PlannedType]
    relations: dict[str, PlannedRelation]
    size: GraphSize
    several: bool

    @property
    def nodes(self) -> int:
        """Nodes of all types."""
        return sum(self.size.nodes.values())

    @property
    def edges(self) -> int:
        """Edges of all relations."""
        return sum(self.size.edges.values())


def plan_graph(
    job: EmbeddingJob,
    inputs: Inputs,
    program: Program,
    grid: GridShape,
    *,
    in_place: bool = False,
) -> PlannedGraph:
    """The node types and relations that a run of a program reads, with their sizes.

    Args:
        in_place: workers share a host, and read each other's tensors where they stand.

    Raises:
        ModelError: the model knows a node type or relation that the manifest has not.
    """
    read = narrow(job, program).spec.input
    named = {name: key for key, name in match_types(job, program).items()}
    types = {
        named.get(node.name, node.name): PlannedType(node=node, splits=inputs.by_nodes[node.name])
        for node in read.nodes
    }
    edges = {relation: edge for edge in read.edges for relation in edge.relations}
    relations = {
        name: _relation(relation, edges[relation], inputs)
        for name, relation in match_relations(job, program).items()
    }
    inference = job.spec.inference
    size = GraphSize(
        nodes={name: of_type.nodes for name, of_type in types.items()},
        edges={name: relation.edges for name, relation in relations.items()},
        grid=grid,
        group_bytes=inference.group_bytes,
        depth=inference.depth,
        merged=inference.groups_per_message if job.spec.workers.device == "cpu" else 1,
        in_place=in_place,
        row_bytes=ROW_TYPES[inference.rows].itemsize,
    )
    return PlannedGraph(types=types, relations=relations, size=size, several=read.several)


def of_layers(graph: PlannedGraph, plan: Plan) -> PlannedGraph:
    """The graph on the grid that computes the layers."""
    return replace(graph, size=replace(graph.size, grid=plan.grid))


def _relation(relation: Relation, edge: EdgeInput, inputs: Inputs) -> PlannedRelation:
    shares = inputs.edge_shares[str(edge.relation)]
    if edge.format in TEXT_FORMATS:
        rows = sum(split.size for split in shares.splits) // _TEXT_BYTES_PER_EDGE
    else:
        rows = sum(split.rows for split in shares.splits)
    exact = (
        not rows_are_counted(edge)
        and edge.directed
        and edge.duplicates == "keep"
        and edge.self_loops == "keep"
    )
    edges = rows * (1 if edge.directed else 2)
    features = 0 if edge.features is None else inputs.edge_features[str(edge.relation)]
    return PlannedRelation(
        relation=relation, edge=edge, shares=shares, edges=edges, exact=exact, features=features
    )


@dataclass(frozen=True, kw_only=True)
class NodeLoads:
    """The rows of a node type that workers read.

    Attributes:
        rows: feature rows of each.
        histogram: buckets of destinations.
    """

    rows: list[int]
    histogram: int

    def rounds(self, most: int) -> tuple[int, float]:
        """Rounds of at most ``most`` rows: of the worker with the most rows, and on average."""
        return _rounds(self.rows, most)


@dataclass(frozen=True, kw_only=True)
class EdgeLoads:
    """The edges of a relation that workers read.

    Attributes:
        edges: of each, about.
        round_edges: that each sends at a time.
        buckets: of rows of a sub-range, by which edges are sorted.
    """

    edges: list[float]
    round_edges: int
    buckets: int

    def rounds(self) -> tuple[int, float]:
        """Rounds of the worker with the most edges, and on average."""
        return _rounds(self.edges, self.round_edges)


def _rounds(items: Sequence[float], most: int) -> tuple[int, float]:
    each = [math.ceil(count / most) for count in items]
    return max(each), sum(each) / len(each)


def node_loads(of_type: PlannedType, workers: int) -> NodeLoads:
    """The loads of so many workers that read a node type."""
    _, buckets = histogram_size(of_type.nodes)
    return NodeLoads(rows=of_type.splits.shares.rows(workers), histogram=buckets)


def edge_loads(relation: PlannedRelation, size: Size) -> EdgeLoads:
    """The loads of the workers that read a relation of that size."""
    read = relation.shares.rows(size.workers)
    total = max(1, sum(read))
    return EdgeLoads(
        # Of text, `read` counts bytes; undirected edges are two each.
        edges=[size.edges * part / total for part in read],
        round_edges=round_edges(size.workers, relation.features),
        buckets=bucket_count(-(-size.nodes // size.workers)),
    )
