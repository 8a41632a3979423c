"""Parts of a plan that are run for some nodes alone: which these are, and their graphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch

from embertide.engine.planning.keeping import excerpt_bytes
from embertide.engine.stages.infer.excerpt import Excerpt, excerpt_of
from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.store import RowStore
from embertide.facts.telemetry.format import human_bytes
from embertide.footprint import GraphSize
from embertide.graph.exchange import any_rank
from embertide.graph.graph import LayerGraph
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.some_rows import count_edges, targets_of
from embertide.kernels.some_rows import sources_of as sources_in
from embertide.kernels.spilled_csr import AnyCsr, SpilledValues, in_memory
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.boundaries import Part
from embertide.program.plans.flow import wanted_in
from embertide.program.plans.layouts import with_placed
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.checker import Checker, Complete, check_some
from embertide.program.steps.execution import Execution, ignored
from embertide.program.steps.frontier import Expand, GraphRows, Rows
from embertide.program.steps.tensors import Tensors
from embertide.spec.relations import ends_of

NO_ROOM = (
    "what they are made of takes {needed} in memory, and tensors are on disk, of which parts take"
    " {room} there at a time"
)
PRIMITIVE = "refresh"
"""Under which the transfers are counted."""


@dataclass(frozen=True)
class Need:
    """Rows to compute, and what they are made of.

    Attributes:
        results: tensor -> [N] bool.
        graphs: layer and relation -> [N] bool of its destination type, the rows whose in-edges are
            read.
        nodes: node type -> [N] bool, the nodes of which any tensor is read.
        made: result of a step -> [N] bool, the rows of it that are read.
    """

    results: Mapping[str, Rows]
    graphs: GraphRows
    nodes: Mapping[str, Rows]
    made: Mapping[str, Rows]


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
        store: has what a part begins with; None: in memory.
        uses_up: features of types all of whose nodes are taken stay as they were loaded, and are
            used up. Else all features stay as they are.
    """

    def __init__(
        self, engine: Engine, store: RowStore | None = None, *, uses_up: bool = False
    ) -> None:
        self._engine, self.whole, self._uses_up = engine, engine.whole, uses_up
        self.store = RowStore(engine) if store is None else store
        self.plan = _placed(engine.plan)
        self._nodes = {name: ranges.nodes for name, ranges in engine.whole.ranges.items()}
        self._opened = (0, 0)
        self._graphs: dict[tuple[int, str], LayerGraph] = {}
        self._csrs: dict[int, tuple[LayerGraph, AnyCsr]] = {}

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
            id(graph): self._csrs.get(id(graph), (graph, graph.csr))
            for graph in self._graphs.values()
        }

    def edges_of(self, layer: int, relation: str) -> Csr:
        """The in-edges of our partition's rows, as they are stored."""
        return in_memory(self._csrs[id(self._graphs[layer, relation])][1])

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
        at = wanted_in(part.plan, part.ops, results, self._nodes, neighbours)
        return Need(results, at.graphs, at.of_types, at.made)

    def count_edges(self, wanted: GraphRows | None = None) -> dict[tuple[int, str], int]:
        """Layer and relation -> edges of the rows that are wanted, or of all; of all ranks.

        Collective: every rank must call.
        """
        ours = {key: self._own_edges(key, wanted) for key in self._graphs}
        gathered = self.whole.exchange.all_objects(list(ours.values()))
        return dict(zip(ours, map(sum, zip(*gathered, strict=True)), strict=True))

    def why_not(self, part: Part, need: Need) -> str:
        """Why the rows that a part needs are not computed alone; "": they are. The same on all
        ranks. Collective: every rank must call.

        They are where the tensors of all rows are in memory, and where those of these rows take no
        more there than the parts of tensors that are on disk.
        """
        ctx, whole = self._engine.ctx, self.whole
        if ctx.scratch is None:
            return ""
        keys = list(self._graphs)
        ours = [self._own_edges(key, need.graphs) for key in keys]
        gathered = whole.exchange.all_objects(ours)
        edges = dict(zip(keys, map(max, zip(*gathered, strict=True)), strict=True))
        most, workers = dict[str, int](), whole.grid.world
        for (_, relation), count in edges.items():
            most[relation] = max(count * workers, most.get(relation, 0))
        options = ctx.job.spec.inference
        size = GraphSize(
            nodes={of: workers * _most(need.nodes.get(of), ranges)
                   for of, ranges in whole.ranges.items()},
            edges={of: most.get(of, 0) for of in part.plan.program.relations},
            grid=whole.grid.shape,
            group_bytes=options.group_bytes,
            depth=options.depth,
            in_place=whole.exchange.channel("world", "features").in_place,
        )  # fmt: skip
        needed = excerpt_bytes(part, size, edges)
        if needed <= ctx.parts_bytes:
            return ""
        return NO_ROOM.format(needed=human_bytes(needed), room=human_bytes(ctx.parts_bytes))

    def _own_edges(self, key: tuple[int, str], wanted: GraphRows | None) -> int:
        graph = self._graphs[key]
        first, last = graph.targets.within(self.whole.grid.rank)
        indptr = graph.csr.indptr[first : last + 1]
        if wanted is None:
            return int(indptr[-1] - indptr[0])
        if key not in wanted:
            return 0
        start, stop = graph.targets.worker(self.whole.grid.rank)
        return count_edges(indptr, wanted[key][start:stop])

    def excerpt(self, need: Need) -> Excerpt:
        """The nodes that a part runs for, and some more where a worker would be idle."""
        return excerpt_of(need.nodes, self._nodes, self.whole.ranges)

    # -- their values ------------------------------------------------------------------------

    def run(self, part: Part, need: Need, *, counted: bool = True) -> Made:
        """Run a part, whose graphs are open, for some rows of what it makes. Where it ends the
        plan, results are left in ``rows``.

        Collective: every rank must call.

        Args:
            counted: as time and progress of the run.
        """
        # Of several layers each operation is timed as its own.
        timed = counted and part.is_one_layer
        with self._engine.clock.layer(part.layer) if timed else nullcontext():
            with on_one_thread():
                excerpt = self.excerpt(need)
                part, execution, checker = self._begin(part, excerpt, need)
            results = self._engine.run(part, execution, checker, counted=counted)
        return Made(execution, results, excerpt)

    def _begin(
        self, part: Part, excerpt: Excerpt, need: Need
    ) -> tuple[Part, Execution, Checker | None]:
        """Ready to run a part for some nodes. Collective: every rank must call."""
        whole, engine, kept = self.whole, self._engine, set[str]()
        wanted, types = need.graphs, whole.program.types
        self.store.begin(part)
        loaded, inputs = engine.loaded, engine.plan.program.inputs
        if self._uses_up and part.first == 0:
            kept = {of for of in inputs if bool(excerpt.rows[of].all())}
        plan = _placed(engine.plan, kept)
        part = replace(part, plan=plan)
        tensors = Tensors(
            whole.exchange,
            plan.program,
            excerpt.ranges,
            {of: loaded[of] if of in kept else self.store.features(part, excerpt, of)
             for of in inputs},
            {of: whole.locations[of] for of in kept},
            batch_bytes=engine.ctx.job.spec.inference.group_bytes,
            row_type=whole.row_type,
        )  # fmt: skip
        tensors.restore({name: self.store.get(excerpt, name) for name in part.starts}, ())
        none = {of: torch.zeros(count, dtype=torch.bool) for of, count in self._nodes.items()}
        graphs = {
            key: self._graph(excerpt, graph, wanted.get(key, none[ends_of(key[1])[1]]))
            for key, graph in self._graphs.items()
        }
        made = {of: rows[excerpt.rows[types[of]]] for of, rows in need.made.items()}
        checker = self._checking(plan, excerpt, wanted, made, graphs)
        execution = replace(
            whole,
            ranges=excerpt.ranges,
            graphs=lambda layer, name: graphs[layer, name],
            tensors=tensors,
            locations={of: whole.locations[of] for of in kept},
            scaled=set(whole.scaled),
            wanted=made,
            on_hop=ignored,
        )
        if checker is not None:
            execution = replace(execution, on_hop=partial(checker.hop, execution))
        return part, execution, checker

    def _graph(self, excerpt: Excerpt, graph: LayerGraph, wanted: Rows) -> LayerGraph:
        """A layer graph with the edges of some rows. Collective: every rank must call."""
        own = excerpt.graph(self.whole, graph, self._csrs[id(graph)][1], wanted)
        return self.store.with_degrees(graph, own)

    def _checking(
        self,
        plan: Plan,
        excerpt: Excerpt,
        wanted: GraphRows,
        made: Mapping[str, Rows],
        graphs: Mapping[tuple[int, str], LayerGraph],
    ) -> Checker | None:
        """Checks rows of an excerpt that are made, and have their edges."""
        if self._engine.checker is None:
            return None
        names = {of: rows.nonzero().squeeze(1) for of, rows in excerpt.rows.items()}
        complete = {key: rows[names[ends_of(key[1])[1]]] for key, rows in wanted.items()}
        some = Complete(complete, made)
        checker = check_some(self._engine.checker, plan, excerpt.ranges, some, names)
        for (layer, name), graph in graphs.items():
            features, rows = graph.features, in_memory(graph.sub_range())
            assert not isinstance(features, SpilledValues)
            checker.take_edges(layer, name, replace(rows, features=features))
        return checker


def _most(rows: Rows | None, ranges: RowRanges) -> int:
    """The most of some rows that a worker owns; one at least."""
    if rows is None:
        return 1
    return max(1, *(int(rows[first:last].sum()) for first, last in pairwise(ranges.workers)))


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
