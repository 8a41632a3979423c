"""Some nodes of each type, numbered in their order: rows that are computed without the others.

The order of a row's in-neighbours stays, and so do its degrees, which are those of the whole graph.
Every worker keeps those of its own nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch

from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.moved import Beside
from embertide.graph.exchange import Channel
from embertide.graph.fetch import RowFetch
from embertide.graph.graph import LayerGraph
from embertide.graph.node_sets import any_rank
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.rows import gather_rows
from embertide.kernels.some_rows import edges_of, take_rows, targets_of
from embertide.kernels.some_rows import sources_of as sources_in
from embertide.kernels.spilled_csr import in_memory
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import Layout, Loaded, Shard
from embertide.program.plans.boundaries import Part
from embertide.program.plans.flow import wanted_in
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.part import check_some
from embertide.program.steps.execution import Execution, ignored
from embertide.program.steps.frontier import Expand, GraphRows, Rows
from embertide.program.steps.tensors import Tensors
from embertide.spec.relations import ends_of

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""


@dataclass(frozen=True)
class Excerpt:
    """Some nodes of each type, on the workers that own them.

    Attributes:
        rows: node type -> [N] bool, those that are part of it.
        before: node type -> [N + 1] int64, how many come before each node.
        ranges: node type -> which worker owns which of them.
    """

    rows: Mapping[str, Rows]
    before: Mapping[str, torch.Tensor]
    ranges: dict[str, RowRanges]

    def of_ours(self, whole: Execution, node_type: str, layout: Layout) -> torch.Tensor:
        """[k] int64, the rows of our shard of a whole tensor that are part of it."""
        first, last = _place(whole, node_type, layout)
        return self.rows[node_type][first:last].nonzero().squeeze(1)

    def shard(self, whole: Execution, name: str) -> Shard:
        """Our shard of a tensor, of which the whole one is there."""
        shard = whole.tensors.to_keep(name)
        rows = self.of_ours(whole, whole.program.types[name], shard.layout)
        return Shard(shard.layout, _some(shard.data, rows), shard.width)

    def features(
        self, whole: Execution, channel: Channel, node_type: str, loaded: Loaded
    ) -> Loaded:
        """The features of our nodes, in order. Collective: every rank must call."""
        rows = self.of_ours(whole, node_type, "rows")
        if loaded.placed:
            data = _some(loaded.data, rows)
        elif channel.axis.size == 1:
            data = _some(loaded.data, whole.locations[node_type][rows, 1].long())
        else:
            first, _ = _place(whole, node_type, "rows")
            fetch = RowFetch(channel, whole.ranges[node_type], rows + first)
            data = fetch.of_loaded(loaded, whole.locations[node_type])
        return Loaded(torch.empty(0, dtype=torch.int64), data, placed=True)

    def graph(self, whole: Execution, graph: LayerGraph, csr: Csr, wanted: Rows) -> LayerGraph:
        """A layer graph with the edges of some rows, whose sources are all part of the excerpt.

        Args:
            csr: of the whole graph, which may have dropped its columns by now.
            wanted: [N] bool of the destination type.
        """
        source, destination = ends_of(graph.relation)
        if all(bool(rows.all()) for rows in (wanted, self.rows[source], self.rows[destination])):
            return graph
        first, last = graph.targets.partition(whole.grid.p)
        start, stop = graph.origins.partition(whole.grid.p)
        own, wanted = self.rows[destination][first:last], wanted[first:last]
        rows = own.nonzero().squeeze(1)
        number = int(self.before[destination][first])
        cut = take_rows(csr, rows, wanted[rows], self.before[source], number)
        features = graph.features
        if features is not None:
            ours = slice(*graph.targets.within(whole.grid.rank))
            some = own[ours].nonzero().squeeze(1)
            edges = edges_of(csr.slice(ours.start, ours.stop), some, wanted[ours][some])
            features = features[edges]
        return LayerGraph(
            exchange=graph.exchange,
            relation=graph.relation,
            targets=self.ranges[destination],
            origins=self.ranges[source],
            features=features,
            csr=cut,
            group_rows=graph.group_rows,
            pair_rows=graph.pair_rows,
            needs=graph.needs,
            whole=graph,
            picked=(rows, self.rows[source][start:stop].nonzero().squeeze(1)),
        )


def excerpt_of(
    rows: Mapping[str, Rows], nodes: Mapping[str, int], ranges: Mapping[str, RowRanges]
) -> Excerpt:
    """The nodes of some rows; of every worker with nodes at least one, so that none is idle.

    Args:
        rows: node type -> [N] bool; a type may be left out.
        nodes: node type -> N.
        ranges: node type -> which worker owns which nodes.
    """
    every, before, parts = dict[str, Rows](), dict[str, torch.Tensor](), dict[str, RowRanges]()
    for name, of_type in ranges.items():
        own = rows[name].clone() if name in rows else torch.zeros(nodes[name], dtype=torch.bool)
        for first, last in pairwise(of_type.workers):
            if first < last and not own[first:last].any():
                own[first] = True
        count = torch.zeros(len(own) + 1, dtype=torch.int64)
        torch.cumsum(own, 0, out=count[1:])
        every[name], before[name] = own, count
        parts[name] = RowRanges(
            tuple(int(count[at]) for at in of_type.partitions),
            of_type.feature,
            tuple(int(count[at]) for at in of_type.workers),
        )
    return Excerpt(every, before, parts)


def _some(data: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[k, d] some rows."""
    return gather_rows(data, rows.to(data.device))


def _place(whole: Execution, node_type: str, layout: Layout) -> tuple[int, int]:
    """First and one-past-last row of ours of a layout."""
    ranges, grid = whole.ranges[node_type], whole.grid
    return ranges.worker(grid.rank) if layout == "rows" else ranges.partition(grid.p)


@dataclass(frozen=True)
class Need:
    """Rows to compute, and what they are made of.

    Attributes:
        results: tensor -> [N] bool.
        graphs: layer and relation -> [N] bool of its destination type, the rows whose in-edges are
            read.
        nodes: node type -> [N] bool, the nodes of which any tensor is read.
    """

    results: Mapping[str, Rows]
    graphs: GraphRows
    nodes: Mapping[str, Rows]


@dataclass(frozen=True)
class Made:
    """What a part has made.

    Attributes:
        execution: has its tensors; of some nodes they are those of an excerpt.
        results: key -> [n, D'] in ``rows``, of the last part.
    """

    execution: Execution
    results: Mapping[str, torch.Tensor]
    some: Excerpt | None = None

    @property
    def excerpt(self) -> Excerpt:
        """The nodes that it was made for, where these are not all."""
        assert self.some is not None
        return self.some


class Excerpts:
    """Runs parts of a plan for some nodes alone, over rows that are there.

    Args:
        engine: its execution holds the tensors of all nodes that a part begins with.
        uses_up: features of types all of whose nodes are taken stay as they were loaded, and are
            used up. Else all features stay as they are.
    """

    def __init__(self, engine: Engine, *, uses_up: bool = False) -> None:
        self._engine, self.whole, self._uses_up = engine, engine.whole, uses_up
        self.plan = _placed(engine.plan)
        self._nodes = {name: ranges.nodes for name, ranges in engine.whole.ranges.items()}
        self._opened = (0, 0)
        self._graphs: dict[tuple[int, str], LayerGraph] = {}
        self._csrs: dict[int, tuple[LayerGraph, Csr]] = {}
        self._exact: Mapping[str, Beside] = {}

    def corrects(self, exact: Mapping[str, Beside]) -> None:
        """Parts begin with these rows of some tensors, in place of those of the whole ones."""
        self._exact = exact

    # -- which rows --------------------------------------------------------------------------

    def open(self, part: Part) -> None:
        """Take the whole layer graphs of a part, with their columns, which may be dropped.

        Collective: every rank must call, once at least.
        """
        ops, opened = part.ops, (part.first, part.end.at)
        if opened == self._opened:
            return
        self._opened = opened
        steps = [step for op in ops for step in (*op.steps, *([op.reader] if op.reader else []))]
        views = [view for step in steps if (view := step.own_edges) is not None]
        keys = sorted({(view.layer, view.relation) for view in views})
        self._graphs = {key: self.whole.graphs(*key) for key in keys}
        self._csrs = {
            id(graph): self._csrs.get(id(graph), (graph, in_memory(graph.csr)))
            for graph in self._graphs.values()
        }

    def edges_of(self, layer: int, relation: str) -> Csr:
        """The in-edges of our partition's rows, as they are stored."""
        return self._csrs[id(self._graphs[layer, relation])][1]

    def sources(self, relation: str, rows: Rows) -> Rows:
        """The sources of all edges of some rows. Collective: every rank must call."""
        source, _ = ends_of(relation)
        found = torch.zeros(self._nodes[source], dtype=torch.bool)
        for (_, name), graph in self._graphs.items():
            if name == relation:
                first, last = graph.targets.partition(self.whole.grid.p)
                csr = self._csrs[id(graph)][1]
                found |= sources_in(csr, rows[first:last], len(found))
        return any_rank(self.whole.exchange, found, PRIMITIVE)

    def targets(self, relation: str, rows: Rows) -> Rows:
        """The rows that have an edge from some sources. Collective: every rank must call."""
        found = torch.zeros(self._nodes[ends_of(relation)[1]], dtype=torch.bool)
        for (_, name), graph in self._graphs.items():
            if name == relation:
                first, last = graph.targets.partition(self.whole.grid.p)
                found[first:last] |= targets_of(self._csrs[id(graph)][1], rows)
        return any_rank(self.whole.exchange, found, PRIMITIVE)

    def need(
        self, part: Part, results: Mapping[str, Rows], neighbours: Expand | None = None
    ) -> Need:
        """What some rows of what a part makes are made of, whose graphs are open.

        Collective: every rank must call.

        Args:
            neighbours: the rows that are read over edges, at least; by default those alone.
        """
        neighbours = self.sources if neighbours is None else neighbours
        return Need(results, *wanted_in(part.plan, part.ops, results, self._nodes, neighbours))

    def count_edges(self, wanted: GraphRows | None = None) -> dict[tuple[int, str], int]:
        """Layer and relation -> edges of the rows that are wanted, or of all; of all ranks.

        Collective: every rank must call.
        """
        ours = {key: self._own_edges(key, wanted) for key in self._graphs}
        gathered = self.whole.exchange.all_objects(list(ours.values()))
        return dict(zip(ours, map(sum, zip(*gathered, strict=True)), strict=True))

    def _own_edges(self, key: tuple[int, str], wanted: GraphRows | None) -> int:
        graph = self._graphs[key]
        first, last = graph.targets.within(self.whole.grid.rank)
        indptr = graph.csr.indptr[first : last + 1]
        if wanted is None:
            return int(indptr[-1] - indptr[0])
        if key not in wanted:
            return 0
        start, stop = graph.targets.worker(self.whole.grid.rank)
        return int(indptr.diff()[wanted[key][start:stop]].sum())

    # -- their values ------------------------------------------------------------------------

    def keep(self, name: str, rows: Rows, values: torch.Tensor) -> None:
        """Rows that were computed, where later parts read them.

        Args:
            rows: [N] bool.
            values: [k, D] our ones of these rows.
        """

    def run(self, part: Part, need: Need, *, counted: bool = True) -> Made:
        """Run a part, whose graphs are open, for some rows of what it makes. Where it ends the
        plan, results are left in ``rows``.

        Collective: every rank must call.

        Args:
            counted: as time and progress of the run.
        """
        with on_one_thread():
            excerpt = excerpt_of(need.nodes, self._nodes, self.whole.ranges)
            part, execution, checker = self._begin(part, excerpt, need.graphs)
        results = self._engine.run(part, execution, checker, counted=counted)
        return Made(execution, results, excerpt)

    def _begin(
        self, part: Part, excerpt: Excerpt, wanted: GraphRows
    ) -> tuple[Part, Execution, Checker | None]:
        """Ready to run a part for some nodes. Collective: every rank must call."""
        whole, engine, kept = self.whole, self._engine, set[str]()
        loaded, inputs = engine.loaded, engine.plan.program.inputs
        if self._uses_up and part.first == 0:
            kept = {of for of in inputs if bool(excerpt.rows[of].all())}
        plan = _placed(engine.plan, kept)
        part = replace(part, plan=plan)
        tensors = Tensors(
            whole.exchange,
            plan.program,
            excerpt.ranges,
            {of: loaded[of] if of in kept else self.features(part, excerpt, of)
             for of in inputs},
            {of: whole.locations[of] for of in kept},
            batch_bytes=engine.ctx.job.spec.inference.group_bytes,
            row_type=whole.row_type,
        )  # fmt: skip
        tensors.restore({name: self.shard(excerpt, name) for name in part.starts}, ())
        none = {of: torch.zeros(count, dtype=torch.bool) for of, count in self._nodes.items()}
        graphs = {
            key: self.graph(excerpt, graph, wanted.get(key, none[ends_of(key[1])[1]]))
            for key, graph in self._graphs.items()
        }
        checker = self._checking(plan, excerpt, wanted, graphs)
        execution = replace(
            whole,
            ranges=excerpt.ranges,
            graphs=lambda layer, name: graphs[layer, name],
            tensors=tensors,
            locations={of: whole.locations[of] for of in kept},
            scaled=set(whole.scaled),
            on_hop=ignored,
        )
        if checker is not None:
            execution = replace(execution, on_hop=partial(checker.hop, execution))
        return part, execution, checker

    def shard(self, excerpt: Excerpt, name: str) -> Shard:
        """Our rows of an excerpt of a tensor that a part begins with."""
        shard = excerpt.shard(self.whole, name)
        if name in self._exact:
            of_type = self.whole.program.types[name]
            picked = excerpt.of_ours(self.whole, of_type, shard.layout)
            self._exact[name].put_into(shard.data, picked)
        return shard

    def features(self, part: Part, excerpt: Excerpt, node_type: str) -> Loaded:
        """The features of some nodes, if an operation of a part or of later ones reads them."""
        name, given = part.plan.program.inputs[node_type], self._engine.loaded[node_type]
        if part.plan.last_reads.get(name, -1) < part.first:
            return Loaded(given.ids[:0], given.data[:0], placed=True)
        channel = self.whole.exchange.channel("world", "features")
        return excerpt.features(self.whole, channel, node_type, given)

    def graph(self, excerpt: Excerpt, graph: LayerGraph, wanted: Rows) -> LayerGraph:
        """A layer graph with the edges of some rows. Collective: every rank must call."""
        return excerpt.graph(self.whole, graph, self._csrs[id(graph)][1], wanted)

    def _checking(
        self,
        plan: Plan,
        excerpt: Excerpt,
        wanted: GraphRows,
        graphs: Mapping[tuple[int, str], LayerGraph],
    ) -> Checker | None:
        """Checks rows of an excerpt that have their edges."""
        if self._engine.checker is None:
            return None
        names = {of: rows.nonzero().squeeze(1) for of, rows in excerpt.rows.items()}
        complete = {key: rows[names[ends_of(key[1])[1]]] for key, rows in wanted.items()}
        checker = check_some(self._engine.checker, plan, excerpt.ranges, complete, names)
        for (layer, name), graph in graphs.items():
            checker.take_edges(layer, name, replace(graph.sub_range(), features=graph.features))
        return checker


def _placed(plan: Plan, kept: Collection[str] = ()) -> Plan:
    """A plan for an excerpt, whose features are in order; factors are applied where the whole plan
    applies them.

    Args:
        kept: node types whose features stay as they were loaded.
    """
    names = [name for name in plan.program.inputs if name not in kept]
    placed = with_placed(plan, [*names, *(plan.target.placed & set(kept))])
    same = [replace(op, scales=of.scales) for op, of in zip(placed.ops, plan.ops, strict=True)]
    return replace(placed, ops=tuple(same))
