"""Rows that are asked for: only what they are made of is computed.

Backward from the rows that are asked for, over the in-edges of each layer, follows which nodes are
needed at all. These make an excerpt of the graphs, in which each layer has the edges of the rows
that are needed of it.

Rows of some tensors may be there: those that a version has kept of the ends of its layers. Then a
node that is asked for, and a new one among the in-neighbours that need it, has its own row computed
in each layer. The rows of all other neighbours are read, so that a layer goes over the in-edges of
few nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from embertide.engine.stages.infer.excerpt import Excerpt
from embertide.engine.stages.infer.excerpts import Excerpts, Made, Need
from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.moved import Beside
from embertide.engine.stages.infer.store import KeptRows, KeptStore, SomeFeatures
from embertide.errors import InputError
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.boundaries import Boundary, Part, all_of, boundary_digest, parts_of
from embertide.program.plans.flow import why_more
from embertide.program.plans.plan import Plan
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.frontier import Expand, Rows, join
from embertide.spec.relations import ends_of

Chosen = Mapping[str, Rows]
"""Node type, by the program's name -> [N] bool, the rows of its results that are wanted."""
ReadFeatures = Callable[[str, Rows], torch.Tensor]
"""Node type and [N] bool -> [k, D] float32, the features of these nodes, in their order."""

NOT_OVER_KEPT = (
    "--over-kept: {why}, so that rows cannot be computed over kept ones; leave it out, which"
    " computes all that the rows are made of"
)
NOT_KEPT = (
    "{uri}: layer {layer} of this model was not kept (its steps or weights, or inference.rows, are"
    " others now, or `embertide layers --remove` has removed it)"
)


class Asked:
    """Some rows of the results, and what they are made of. Methods are collective.

    Args:
        excerpts: has the rows that are there.
        parts: may end where tensors are there.
        chosen: a type may be left out.
        computed: node type -> [N] bool, the rows that are computed of tensors that parts begin
            with; the others are there. None: all are there.
        neighbours: the rows that are read over edges, at least; None: those alone.

    Attributes:
        needs: what the parts that compute any row need, in order.
        edges: that they go over.
    """

    def __init__(
        self,
        excerpts: Excerpts,
        parts: Sequence[Part],
        chosen: Chosen,
        computed: Mapping[str, Rows] | None = None,
        neighbours: Expand | None = None,
    ) -> None:
        self.excerpts, self._chosen = excerpts, chosen
        self.needs, self.edges = dict[Part, Need](), 0
        self._values = dict[str, torch.Tensor]()
        types = excerpts.plan.program.types
        names = dict.fromkeys(excerpts.plan.program.results.values())
        wants = {name: chosen[types[name]] for name in names if types[name] in chosen}
        for part in reversed(parts):
            made = {step.out for op in part.ops for step in op.steps}
            due = {name: wants.pop(name) for name in list(wants) if name in made}
            due = {name: rows for name, rows in due.items() if computed is None or bool(rows.any())}
            if not due:
                continue
            with on_one_thread():
                excerpts.open(part)
                need = excerpts.need(part, due, neighbours)
            self.edges += sum(excerpts.count_edges(need.graphs).values())
            self.needs = {part: need, **self.needs}
            if computed is None:
                continue
            for name in part.starts:
                if types[name] in need.nodes:
                    join(wants, name, need.nodes[types[name]] & computed[types[name]])

    def why_all(self) -> str:
        """Why all rows are computed in place of these alone; "": they are not. Collective."""
        every = (self.excerpts.why_not(part, need) for part, need in self.needs.items())
        return next(filter(None, every), "")

    @property
    def parts(self) -> list[Part]:
        """Those that compute any row."""
        return list(self.needs)

    @property
    def excerpt(self) -> Excerpt:
        """The nodes that the first part runs for."""
        return self.excerpts.excerpt(self.needs[self.parts[0]])

    def need(self, part: Part) -> Need:
        """What was found to be needed."""
        self.excerpts.open(part)
        return self.needs[part]

    def put(self, part: Part, made: Made) -> None:
        """Take our rows that are wanted, for later parts and for the results."""
        whole = self.excerpts.whole
        for name, rows in self.needs[part].results.items():
            of_type = whole.program.types[name]
            shard = made.execution.tensors.converted(name, "rows", made.execution.channel(0))
            ours = own_rows(whole, rows, of_type)[made.excerpt.of_ours(whole, of_type, "rows")]
            self._values[name] = shard.data[ours.to(shard.data.device)]
            numbers = own_rows(whole, rows, of_type).nonzero().squeeze(1)
            self.excerpts.store.put(name, Beside(numbers, self._values[name]))

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> [k, D'] float32, its chosen rows of our sub-range, in their order."""
        whole, rows = self.excerpts.whole, dict[str, torch.Tensor]()
        made = {name: own for need in self.needs.values() for name, own in need.results.items()}
        for key, name in whole.program.results.items():
            of_type = whole.program.types[name]
            if name in made and of_type in self._chosen:
                # A later layer may have needed rows of more nodes.
                chosen = own_rows(whole, self._chosen[of_type], of_type)
                rows[key] = self._values[name][chosen[own_rows(whole, made[name], of_type)]]
        return rows


def asked_after(engine: Engine, chosen: Chosen, first: int = 0) -> Asked:
    """Rows of a run that keeps none, in one part: nothing is there but what operation ``first``
    begins with. Collective: every rank must call."""
    excerpts = Excerpts(engine, uses_up=True)
    part = all_of(excerpts.plan, first)
    with on_one_thread():
        excerpts.open(part)
        neighbours = _near_all(engine, excerpts)
    asked = Asked(excerpts, [part], chosen, neighbours=neighbours)
    facts, steps = engine.ctx.graph_facts.chosen, engine.plan.program.steps
    every = excerpts.count_edges()
    read = {(step.layer, step.relation) for step in steps if isinstance(step, EdgeStep)}
    of_relation = {relation: count for (_, relation), count in every.items()}
    facts.edges = asked.edges
    facts.all_edges = sum(every.get(key, of_relation.get(key[1], 0)) for key in read)
    return asked


def own_rows(whole: Execution, rows: Rows, node_type: str) -> Rows:
    """[N/(P*M)] those of [N] that are of our sub-range."""
    return rows[slice(*whole.ranges[node_type].worker(whole.grid.rank))]


def _near_all(engine: Engine, excerpts: Excerpts) -> Expand:
    """The in-neighbours of some rows; all nodes where that is about as many, of which none is
    counted any more (DGI, section 4.1).

    Collective, and so is the result: every rank must call.
    """
    edges, nodes = dict[str, int](), {of: own.nodes for of, own in engine.whole.ranges.items()}
    for (_, relation), count in excerpts.count_edges().items():
        edges[relation] = max(count, edges.get(relation, 0))

    def neighbours(relation: str, rows: Rows) -> Rows:
        source, destination = ends_of(relation)
        if int(rows.sum()) * edges[relation] >= nodes[source] * nodes[destination]:
            return torch.ones(nodes[source], dtype=torch.bool)
        return excerpts.sources(relation, rows)

    return neighbours


# -- over the rows of a version --------------------------------------------------------------


@dataclass(frozen=True)
class OverKept:
    """Rows of some nodes.

    Attributes:
        rows: key of a result -> [k, D'] float32, its rows that were asked for, by dense id.
        computed: node type -> [N] bool, the nodes of which a row was computed.
        features: node type -> the features that were read.
        edges: that all layers went over.
    """

    rows: dict[str, torch.Tensor]
    computed: dict[str, Rows]
    features: dict[str, SomeFeatures]
    edges: int


def sealed_end(store: LayerStore, plan: Plan, end: Boundary, row_type: str, basis: str) -> Seal:
    """The record of a kept layer.

    Raises:
        Damaged: it is not there, or is not what was written.
    """
    seal = store.sealed(boundary_digest(plan, end, row_type, basis))
    if seal is None:
        raise Damaged(NOT_KEPT.format(uri=store.uri, layer=end.layer))
    return seal


def check_over_kept(plan: Plan, *, sampled: bool) -> None:
    """Refuse a model of which a row needs more of its neighbours than the rows that are kept.

    Args:
        sampled: each layer reads a sample of the edges.

    Raises:
        InputError: says which step does.
    """
    for part in parts_of(plan):
        if why := why_more(part.ops, sampled=sampled):
            raise InputError(NOT_OVER_KEPT.format(why=why))


def asked_over_kept(
    engine: Engine, read: ReadFeatures, kept: KeptRows, chosen: Chosen
) -> tuple[Asked, dict[str, SomeFeatures]]:
    """Rows on one worker over those that a version has kept, and the features that they need.

    Raises:
        Damaged: what was kept is not what was written, or not of this model.
    """
    computed = {of: before < 0 for of, before in kept.before.items()}
    computed |= {of: computed[of] | rows for of, rows in chosen.items()}
    plan, row_type = engine.plan, engine.ctx.job.spec.inference.rows
    parts = parts_of(plan)
    seals = {
        end.at: sealed_end(kept.store, plan, end, row_type, kept.basis)
        for end in (part.end for part in parts[:-1])
    }
    store = KeptStore(engine, kept, computed, seals)
    excerpts = Excerpts(engine, store)
    parts = parts_of(excerpts.plan)
    asked, needed = Asked(excerpts, parts, chosen, computed), dict[str, Rows]()
    for part, need in asked.needs.items():
        for (_, relation), rows in need.graphs.items():
            beyond = rows & ~computed[ends_of(relation)[1]]
            assert not bool(beyond.any()), f"in-edges of {relation} are not there"
        for of, name in plan.program.inputs.items():
            if of in need.nodes and part.first <= plan.last_reads.get(name, -1):
                join(needed, of, need.nodes[of])
    features = {of: SomeFeatures(rows, read(of, rows)) for of, rows in needed.items()}
    store.take_features(features)
    return asked, features
