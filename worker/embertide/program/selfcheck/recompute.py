"""A unit's rows in float64, by the references of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from embertide.graph.directory import RowFetch
from embertide.graph.views import EdgeView
from embertide.layouts import Shard
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.draw import CHUNK_VALUES, Nodes
from embertide.program.selfcheck.row_edges import RowEdges
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op, Reach
from embertide.program.steps.program import Program
from embertide.program.steps.reference import Degrees, End, LayerGraph, ReferenceRun
from embertide.spec.relations import ends_of

Change = Callable[[Tensor], Tensor]
"""What is done to each tensor that a step reads or makes."""
DegreeKey = tuple[EdgeView, End, bool]
PRIMITIVE = "check"
"""Under which the transfers are counted."""


def unchanged(values: Tensor) -> Tensor:
    """The values."""
    return values


@dataclass
class Recomputation:
    """What a unit's rows are computed of again.

    Attributes:
        rows: [n] dense ids of our rows, ascending.
        edges: layer and relation -> the in-edges of the rows.
        captured: the tensors that the unit reads from before it.
        degrees: of the nodes that the step over edges reads, as the run has counted them.
        hop: of a step that sums several times, the result of the sum before, and the sum of results
            [n, D] float64 so far, where the step's result is one.
        params: in float64, as they are needed.
        pieces: number of such a sum -> its rows, and which of their columns are there.
        compared: how many of its sums were.
    """

    unit: Unit
    program: Program
    rows: Nodes
    edges: dict[tuple[int, str], RowEdges]
    captured: dict[str, Captured] = field(default_factory=dict)
    degrees: dict[DegreeKey, Captured] = field(default_factory=dict)
    hop: tuple[Captured, Tensor | None] | None = None
    params: dict[str, Tensor] = field(default_factory=dict)
    pieces: dict[int, tuple[Captured, Tensor]] = field(default_factory=dict)
    compared: int = 0

    @property
    def sources(self) -> Nodes:
        """[s] the nodes whose rows the step over edges reads, ascending."""
        step = self.unit.over_edges
        if step is None:
            return np.empty(0, np.int64)
        cols = self.edges[step.layer, step.relation].sources
        # Within a type, self-loops that a step adds read the row itself.
        within = self.within(step.edges)
        return np.unique(np.concatenate([cols, self.rows]) if within else cols)

    def compute(self, at: Nodes, change: Change = unchanged) -> dict[str, Tensor]:
        """The tensors [k, width] float64 that the unit makes, of some of its rows.

        Args:
            at: [k] places among the rows, ascending.
            change: of every tensor that is read or made, to see what rounding does.
        """
        parts = [_Part(self, some, change).all() for some in self._chunks(at)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def compute_hop(self, at: Nodes, change: Change = unchanged) -> Tensor:
        """[k, D] the next of the sums of a step that sums several times."""
        step = self.unit.over_edges
        assert step is not None
        return torch.cat([_Part(self, some, change).hop(step) for some in self._chunks(at)])

    def with_columns(
        self, number: int, rows: Captured, columns: Sequence[slice] | None
    ) -> Captured | None:
        """All columns of a sum, once those that come now are there; None before.

        None also where all of them were compared, and some come again: a panel that had no memory
        for a later sum is computed again.

        Args:
            columns: those that come; None: all.
        """
        if number <= self.compared:
            return None
        step = self.unit.over_edges
        if step is None or columns is None:
            return rows
        width = self.program.widths[step.out]
        none = replace(rows, values=rows.values.new_empty(len(rows.values), width))
        # Columns may come again, where they are computed again.
        whole, there = self.pieces.pop(number, (none, torch.zeros(width, dtype=torch.bool)))
        parts = [part.stop - part.start for part in columns]
        for part, values in zip(columns, rows.values.split(parts, 1), strict=True):
            whole.values[:, part], there[part] = values, True
        if there.all():
            return whole
        self.pieces[number] = whole, there
        return None

    def passed(self, step: EdgeStep, number: int, after: Captured) -> None:
        """A sum was compared: the next one follows from it, and the result has its share of it."""
        total = self.hop[1] if self.hop else None
        if step.shares is not None:
            share = step.shares[number] * after.at(self.rows)
            total = share if total is None else total + share
        self.hop, self.compared = (after, total), number

    def _chunks(self, at: Nodes) -> list[Nodes]:
        """Some of the rows at a time, by their in-edges."""
        widest = max([*self.program.widths.values(), 1])
        counts = sum((np.diff(edges.indptr)[at] for edges in self.edges.values()), at * 0)
        chunk = np.cumsum((counts + 1) * widest) // CHUNK_VALUES
        return np.split(at, np.flatnonzero(np.diff(chunk)) + 1)

    def factors(self, step: Step, nodes: Nodes) -> Tensor | None:
        """[k, 1] factors that a step has for nodes as sources."""
        view = step.own_edges
        assert view is not None
        known: Degrees = {
            (end, weighted): self.degrees[view, end, weighted].at(nodes)
            for end, weighted in step.degrees_read
        }
        return step.reference_source_factors(known)

    def param(self, name: str) -> Tensor:
        """A parameter in float64."""
        if name not in self.params:
            self.params[name] = self.program.params[name].double()
        return self.params[name]

    def within(self, view: EdgeView) -> bool:
        """Whether a graph's edges lead from a type to itself."""
        source, destination = ends_of(view.relation)
        return source == destination


@dataclass
class _Part:
    """Some rows of a recomputation, and what has been made of them."""

    whole: Recomputation
    places: Nodes
    change: Change
    made: dict[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> Nodes:
        return self.whole.rows[self.places]

    def read(self, name: str) -> Tensor:
        """[k, width] a tensor's rows, from before the unit or made by it."""
        if name in self.made:
            return self.made[name]
        return self.change(self.whole.captured[name].at(self.rows))

    def all(self) -> dict[str, Tensor]:
        """Every tensor that the unit makes."""
        for op in self.whole.unit.ops:
            for before, step in zip((None, *op.steps), op.steps, strict=False):
                if before is not None and op.onto is not None and step.summed:
                    # All products but the last are in the tensor that it is added to.
                    self.made[step.out] = self.read(op.onto) + self.made[before.out]
                else:
                    self.made[step.out] = self.change(self.make(step))
            if op.onto is not None and not any(step.summed for step in op.steps):
                self.made[op.out] = self.made[op.out] + self.read(op.onto)
        return self.made

    def make(self, step: Step) -> Tensor:
        """[k, width] the result of a step."""
        if isinstance(step, EdgeStep) and step.passes > 1:
            return self._sums(step)
        if step.own_edges is not None:
            run, _ = self._over(step, step.own_edges)
            return step.reference(run)[: len(self.places)]
        tensors = {name: self.read(name) for name in step.reads()}
        return step.reference(
            self._run(step, tensors, {self.whole.unit.node_type: len(self.places)})
        )

    def hop(self, step: EdgeStep) -> Tensor:
        """[k, D] a sum of the result before it."""
        run, sources = self._over(step, step.edges)
        before = self.whole.hop[0] if self.whole.hop else self.whole.captured[step.x]
        values = self._of_sources(step, before, sources)
        return step.reference_pass(run, values)[: len(self.places)]

    def _sums(self, step: EdgeStep) -> Tensor:
        """The result of a step that sums several times, by its last sum."""
        last = self.change(self.hop(step))
        if step.shares is None:
            return last
        total = self.whole.hop[1] if self.whole.hop else None
        before = self.read(step.x) * step.shares[0]
        if total is not None:
            before = before + self.change(total[torch.from_numpy(self.places)])
        return before + step.shares[-1] * last

    # -- over edges --------------------------------------------------------------------------

    def _over(self, step: Step, view: EdgeView) -> tuple[ReferenceRun, Nodes]:
        """What the reference of a step reads, and the nodes of its sources.

        Within a type both ends are numbered together, our rows first.
        """
        whole, count = self.whole, len(self.places)
        within = whole.within(view)
        if not whole.unit.are_rows(view):
            sources, graph = self.rows, _no_edges()
        else:
            edges = whole.edges[view.layer, view.relation].of_rows(self.rows)
            sources, graph = _number(edges, within=within)
        targets = len(sources) if within else count
        tensors = {}
        for name in dict.fromkeys(step.reads()):
            if step is whole.unit.over_edges and name in whole.unit.at_sources:
                tensors[name] = self._of_sources(step, whole.captured[name], sources)
            else:
                tensors[name] = _padded(self.read(name), targets)
        source, destination = ends_of(view.relation)
        nodes = {destination: targets, source: len(sources)}
        run = self._run(step, tensors, nodes, {view.relation: graph}, view.layer)
        return replace(run, degrees=self._known(step, view, run, sources)), sources

    def _of_sources(self, step: Step, rows: Captured, sources: Nodes) -> Tensor:
        """[s, width] rows of sources, without the factors that they are multiplied by."""
        values = rows.at(sources)
        if rows.scaled:
            factors = self.whole.factors(step, sources)
            if factors is not None:
                # A factor of zero leaves nothing of a row, whatever it was.
                values = torch.where(factors == 0, 0.0, values / factors)
        return self.change(values)

    def _known(
        self, step: Step, view: EdgeView, run: ReferenceRun, sources: Nodes
    ) -> Mapping[EdgeView, Degrees]:
        """Degrees of sources as the run has them; those of in-edges of our rows are counted."""
        known: dict[tuple[End, bool], Tensor] = {}
        for end, weighted in step.degrees_read:
            # Steps that read no rows of their sources need no degrees of them either.
            nodes = sources if step is self.whole.unit.over_edges else self.rows
            values = _padded(self.whole.degrees[view, end, weighted].at(nodes), len(sources))[:, 0]
            if end == "in":
                edges = run.edges(view)
                add = edges.weighted_degree if weighted else edges.degree
                values[: len(self.places)] = add(edges.dst)[: len(self.places)]
            known[end, weighted] = values
        return {view: known}

    def _run(
        self,
        step: Step,
        tensors: dict[str, Tensor],
        nodes: dict[str, int],
        graphs: Mapping[str, LayerGraph] | None = None,
        layer: int = 0,
    ) -> ReferenceRun:
        params = {name: self.whole.param(name) for name in step.param_names()}
        layers = [dict[str, LayerGraph]() for _ in range(layer)]
        return ReferenceRun(params, tensors, [*layers, dict(graphs or {})], nodes)


def _number(edges: RowEdges, *, within: bool) -> tuple[Nodes, LayerGraph]:
    """The nodes of the sources, and the edges by their numbers."""
    cols = edges.sources
    if within:
        others = np.setdiff1d(cols, edges.rows)
        sources = np.concatenate([edges.rows, others])
    else:
        sources = np.unique(cols)
    order = np.argsort(sources, kind="stable")
    src = torch.from_numpy(order[np.searchsorted(sources, cols, sorter=order)])
    counts = torch.from_numpy(np.diff(edges.indptr))
    dst = torch.repeat_interleave(torch.arange(len(edges.rows)), counts)
    return sources, (src, dst, edges.weights, edges.features)


def _no_edges() -> LayerGraph:
    none = torch.empty(0, dtype=torch.int64)
    return none, none.clone(), None, None


def _padded(values: Tensor, rows: int) -> Tensor:
    """With zeros for the sources after our rows, which are not read."""
    if len(values) == rows:
        return values
    return torch.cat([values, values.new_zeros(rows - len(values), values.shape[1])])


@dataclass(frozen=True, eq=False)
class Unit:
    """The operations of a phase that make rows of one node type.

    Attributes:
        skipped: the first of them, whose rows need a statistic over all nodes; it is not computed
            again, and what it made is taken as it is.
    """

    phase: int
    node_type: str
    ops: tuple[Op, ...]
    skipped: Op | None = None

    @cached_property
    def steps(self) -> list[Step]:
        """The steps that are computed again, in order."""
        return [step for op in self.ops for step in op.steps]

    @property
    def layer(self) -> int:
        """The layer graph that the unit belongs to."""
        return (self.ops or (self.skipped,))[0].steps[0].layer  # type: ignore[union-attr]

    @cached_property
    def over_edges(self) -> EdgeStep | None:
        """The step that reads rows of neighbours; there is one at most, and it is the first."""
        first = self.steps[0] if self.steps else None
        return first if isinstance(first, EdgeStep) else None

    @cached_property
    def graphs(self) -> list[tuple[int, str]]:
        """Layer and relation of the graphs whose in-edges of the rows are needed."""
        views = [view for step in self.steps if (view := step.own_edges) is not None]
        ours = [view for view in views if self.are_rows(view)]
        return list(dict.fromkeys((view.layer, view.relation) for view in ours))

    def are_rows(self, view: EdgeView) -> bool:
        """Whether the rows are destinations of a layer graph, and not sources alone."""
        return not view.relation or ends_of(view.relation)[1] == self.node_type

    @cached_property
    def at_sources(self) -> list[str]:
        """Tensors whose rows are read at the sources of edges."""
        return self.over_edges.reads_at_sources() if self.over_edges else []

    @cached_property
    def at_rows(self) -> list[str]:
        """All other tensors from before the unit: their rows are read at the rows themselves."""
        made: set[str] = set()
        names: list[str] = []
        for op in self.ops:
            names += [op.onto] if op.onto is not None else []
            for step in op.steps:
                own = step.reads_at_rows()
                # A sum of products is read as the tensor that it is added to.
                names += [] if op.onto is not None and step.summed else own
                made.add(step.out)
        there = {*made, *self.at_sources}
        return [name for name in dict.fromkeys(names) if name not in there]


def units_of(plan: Plan) -> list[list[Unit]]:
    """The units of each phase."""
    types = plan.program.types
    phases: list[list[Unit]] = []
    for phase in range(max(plan.phases) + 1):
        ops = [op for op, number in zip(plan.ops, plan.phases, strict=True) if number == phase]
        skipped = ops.pop(0) if ops[0].reach is Reach.GRAPH else None
        names = dict.fromkeys(types[op.out] for op in [*ops, *([skipped] if skipped else [])])
        phases.append(
            [
                Unit(
                    phase,
                    name,
                    tuple(op for op in ops if types[op.out] == name),
                    skipped if skipped and types[skipped.out] == name else None,
                )
                for name in names
            ]
        )
    return phases


@dataclass(frozen=True)
class Captured:
    """Rows of a tensor.

    Attributes:
        nodes: [n] dense ids, ascending.
        values: [n, width] float32, on the CPU.
        scaled: they are multiplied by factors of sources already.
    """

    nodes: Nodes
    values: Tensor
    scaled: bool = False

    def at(self, nodes: Nodes) -> Tensor:
        """[k, width] float64 of nodes that are there."""
        return self.values[torch.from_numpy(np.searchsorted(self.nodes, nodes))].double()


@dataclass(frozen=True)
class Fetch:
    """Brings rows of any tensor of an execution for the same nodes of a type.

    Collective: every rank must make one, and call the same methods.
    """

    execution: Execution
    nodes: Nodes
    rows: RowFetch

    @classmethod
    def of(cls, execution: Execution, node_type: str, nodes: Nodes) -> Fetch:
        """For ascending dense ids of a node type."""
        channel = execution.exchange.channel("world", PRIMITIVE)
        wanted = torch.from_numpy(nodes)
        return cls(execution, nodes, RowFetch(channel, execution.ranges[node_type], wanted))

    def tensor(self, name: str) -> Captured:
        """Rows of a tensor as it is held; it is left as it is."""
        execution, tensors = self.execution, self.execution.tensors
        shard = tensors.current(name)
        if shard is None:
            of_type = execution.program.types[name]
            locations = execution.locations[of_type]
            return self._kept(self.rows.of_loaded(tensors.loaded(name), locations), scaled=False)
        return self.shard(shard, scaled=name in execution.scaled)

    def shard(self, shard: Shard, *, scaled: bool = False) -> Captured:
        """Rows of a tensor, given our part of it."""
        return self._kept(self.rows.of(shard), scaled=scaled)

    def degrees(self, view: EdgeView, end: End, *, weighted: bool) -> Captured:
        """[n, 1] degrees as the run has counted them, at one end of a layer graph."""
        graph = self.execution.graph(view)
        weighs = weighted and view.edge_weight
        if end == "in":
            values = graph.weighted_in_degree() if weighs else graph.in_degree()
            ranges = graph.targets
        else:
            values = graph.weighted_out_degree() if weighs else graph.out_degree()
            ranges = graph.origins
        own = values[slice(*ranges.within(self.execution.grid.rank))]
        return self.shard(Shard("rows", own.unsqueeze(1), 1))

    def _kept(self, values: Tensor, *, scaled: bool) -> Captured:
        return Captured(self.nodes, values, scaled)
