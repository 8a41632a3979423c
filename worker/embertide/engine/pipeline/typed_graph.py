"""From inputs to the typed graph: what a run and a check have in common.

Node types and edge types one after another, each by the same stages; a graph of one type has one of
each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial

import torch

from embertide.context import RunContext
from embertide.engine.planning.growth import Growth
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.matching import planned_omissions
from embertide.engine.stages.csr import build_graph, choose_ranges
from embertide.engine.stages.features import LoadedNodes, load_nodes, locate_features
from embertide.engine.stages.ingest import ingest, reverse
from embertide.engine.stages.loops import LoopCount
from embertide.engine.stages.scores import Pairs, read_pairs
from embertide.facts.telemetry.memory import arrow_on_the_heap
from embertide.facts.telemetry.omissions import Omissions
from embertide.graph.exchange import Exchange
from embertide.graph.node_ids import Ends
from embertide.graph.shuffle import Edges
from embertide.grid import RowRanges
from embertide.io.readers.ids import Mask
from embertide.io.readers.pool import are_remote
from embertide.io.readers.splits import assign_splits
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words
from embertide.kernels.ids import Ids
from embertide.kernels.spilled_csr import AnyCsr
from embertide.program.steps import Program
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation

ReadBack = Callable[[Relation, RowRanges], Csr | Edges | None]
"""Collective: every rank must call."""


@dataclass(frozen=True)
class Located:
    """What a rank knows of the nodes of a type that it owns.

    Attributes:
        ranges: which worker owns which of all nodes.
        locations: [N/(P*M), 2] where the features of ours are, see :func:`locate_features`.
        names: [N/(P*M)] their ids in the files.
        keys: [N/(P*M)] a stable 64-bit key of each.
    """

    ranges: RowRanges
    locations: torch.Tensor
    names: Ids
    keys: Words


@dataclass(frozen=True)
class TypedGraph:
    """The whole graph, as one rank has it.

    Attributes:
        located: node type -> its nodes.
        sub_ranges: relation -> the CSR of our sub-range of its destination type.
    """

    located: dict[str, Located]
    sub_ranges: dict[Relation, AnyCsr]

    def of_types(
        self, names: dict[str, str]
    ) -> tuple[dict[str, RowRanges], dict[str, torch.Tensor]]:
        """Ranges and locations of features, by the names that a program has for the node types.

        Args:
            names: the program's name of a type -> the manifest's.
        """
        located = {name: self.located[of_type] for name, of_type in names.items()}
        return (
            {name: of_type.ranges for name, of_type in located.items()},
            {name: of_type.locations for name, of_type in located.items()},
        )

    def count_edges(self, exchange: Exchange) -> dict[Relation, int]:
        """Relation -> its edges, of all ranks. Collective: every rank must call."""
        gathered = exchange.all_objects([csr.nnz for csr in self.sub_ranges.values()])
        return dict(zip(self.sub_ranges, map(sum, zip(*gathered, strict=True)), strict=True))

    def of_relations(self, program: Program) -> dict[str, Relation]:
        """The relations that a program reads, by the names that it has for them."""
        by_text = {str(relation): relation for relation in self.sub_ranges}
        if program.relations == [""]:
            by_text[""] = next(iter(self.sub_ranges))
        return {name: by_text[name] for name in program.relations}


def load_types(ctx: RunContext, inputs: Inputs, *, later: bool = False) -> dict[str, LoadedNodes]:
    """Node type -> its nodes and our share of their features.

    Collective: every rank must call.

    Args:
        later: read no features whose places are known, see :attr:`LoadedNodes.places`.
    """
    given = ctx.job.spec.input.nodes
    splits = [inputs.by_nodes[node.name] for node in given]
    shares = ctx.parts([max(1, of_type.feature_rows) for of_type in splits])
    # To give memory back takes longer than to read what a few nodes need.
    many = not later and are_remote([*inputs.features, *inputs.table])
    with arrow_on_the_heap() if many else nullcontext():
        return {
            node.name: load_nodes(share, node, of_type, later=later)
            for share, node, of_type in zip(shares, given, splits, strict=True)
        }


def ingest_types(
    ctx: RunContext,
    inputs: Inputs,
    nodes: dict[str, LoadedNodes],
    only: Mapping[str, Mask] | None = None,
    kept: Mapping[Relation, Edges] | None = None,
) -> dict[Relation, Edges]:
    """Relation -> our share of its edges; a reverse shares the memory of its own.

    Collective: every rank must call.

    Args:
        only: node type -> [N] bool, the nodes whose edges alone are kept; None: all are.
        kept: relation -> what stands for its edges, where their graph was kept: they are not read.
    """
    given, found = ctx.job.spec.input.edges, dict[Relation, Edges]()
    splits = [inputs.by_edges[str(edge.relation)] for edge in given]
    shares = ctx.parts([sum(split.size for split in of_type) or 1 for of_type in splits])
    for share, edge in zip(shares, given, strict=True):
        there = {r: own for r, own in (kept or {}).items() if r in edge.relations}
        found |= there or ingest_type(share, inputs, nodes, edge, only)
    return found


def ingest_type(
    ctx: RunContext,
    inputs: Inputs,
    nodes: dict[str, LoadedNodes],
    edge: EdgeInput,
    only: Mapping[str, Mask] | None = None,
) -> dict[Relation, Edges]:
    """The same of one edge type. Collective: every rank must call."""
    own = str(edge.relation)
    features = 0 if edge.features is None else inputs.edge_features[own]
    ends = Ends(
        edge, nodes[edge.source_type], nodes[edge.destination_type], features,
        inputs.edge_categories.get(own, []),
        None if only is None else (only[edge.source_type], only[edge.destination_type]),
    )  # fmt: skip
    mine = assign_splits(inputs.by_edges[own], ctx.grid.world)[ctx.grid.rank]
    edges = ingest(ctx, ends, mine)
    turned = {other: reverse(edges, ends.counts[0]) for other in edge.relations[1:]}
    return {edge.relation: edges, **turned}


def pairs_of(ctx: RunContext, inputs: Inputs, nodes: dict[str, LoadedNodes]) -> Pairs | None:
    """Our share of the pairs that get scores; None where there are none.

    Collective: every rank must call.
    """
    given = ctx.job.spec.input.pairs
    if given is None:
        return None
    ends = Ends(given.edges, nodes[given.source_type], nodes[given.destination_type])
    mine = assign_splits(inputs.pairs, ctx.grid.world)[ctx.grid.rank]
    return read_pairs(ctx, given, ends, mine)


def omissions_of(
    job: EmbeddingJob,
    inputs: Inputs,
    nodes: dict[str, LoadedNodes],
    edges: dict[Relation, Edges],
) -> Omissions:
    """What a run does without; the same on every rank.

    Args:
        job: with those inputs alone that are read.
        nodes, edges: all that were read.
    """
    planned = planned_omissions(job, inputs)
    dropped = [own.dropped for own in edges.values() if own.dropped is not None]
    filled = [one for of_type in nodes.values() for one in of_type.filled]
    return replace(planned, dropped_edges=dropped, filled_nodes=[*planned.filled_nodes, *filled])


def drop_unread(edges: dict[Relation, Edges], read: dict[str, Relation]) -> None:
    """Let go of relations that a program does not read; ``read`` has those that it does."""
    for relation in set(edges).difference(read.values()):
        edges.pop(relation).close()


def build_types(
    ctx: RunContext,
    nodes: dict[str, LoadedNodes],
    edges: dict[Relation, Edges],
    grown: Callable[[], dict[str, list[Growth]]] = dict,
    read_back: ReadBack | None = None,
    loops: LoopCount | None = None,
) -> TypedGraph:
    """Cut every node type over the grid, and send each edge to the owner of its destination.

    ``edges`` is emptied. Collective: every rank must call.

    Args:
        grown: node type -> what its rows and edges may take, see :func:`choose_ranges`.
        read_back: our rows of a graph that was kept, or edges of a relation to build it from in
            place of those that are there; None: it is built from these. None: all are.
        loops: counts the nodes of whose self-loops one counts.
    """
    once, loops = cache(grown), loops or LoopCount()
    ranges: dict[str, RowRanges] = {}
    for name, of_type in nodes.items():
        incoming = [own for relation, own in edges.items() if relation.destination == name]
        ranges[name] = choose_ranges(
            ctx, incoming, of_type.ids.count, partial(_of_type, once, name)
        )
    kinds = {relation: edge for edge in ctx.job.spec.input.edges for relation in edge.relations}
    shares = ctx.parts([max(1, own.count) for own in edges.values()])
    sub_ranges: dict[Relation, AnyCsr] = {}
    for share, relation in zip(shares, list(edges), strict=True):
        ends = ranges[relation.destination], ranges[relation.source].nodes
        own = edges.pop(relation)
        there = None if read_back is None else read_back(relation, ends[0])
        if isinstance(there, Csr):
            loops.see(relation, None, there)
            sub_ranges[relation] = there
            continue
        name = str(relation) if ctx.job.spec.input.several else ""
        see = partial(loops.see, relation, kinds[relation])
        sub_ranges[relation] = build_graph(share, kinds[relation], there or own, *ends, name, see)
        del own, there
    located = {
        name: Located(
            ranges[name],
            locate_features(ctx, of_type, ranges[name]),
            *of_type.ids.original(ranges[name]),
        )
        for name, of_type in nodes.items()
    }
    return TypedGraph(located, sub_ranges)


def _of_type(grown: Callable[[], dict[str, list[Growth]]], name: str) -> list[Growth]:
    """What a node type's rows and edges may take; without a plan whatever they do."""
    return grown().get(name, [])
