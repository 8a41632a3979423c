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

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from embertide.engine.stages.infer.excerpt import Excerpts, Made, Need
from embertide.engine.stages.infer.kept_rows import KeptExcerpts, KeptRows, SomeFeatures
from embertide.engine.stages.infer.loop import Engine, Part, all_of, parts_of
from embertide.errors import InputError
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.boundaries import Boundary, boundary_digest
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


def needed(
    excerpts: Excerpts,
    parts: list[Part],
    chosen: Chosen,
    computable: Mapping[str, Rows] | None = None,
    neighbours: Expand | None = None,
) -> list[tuple[Part, Need]]:
    """The parts that compute any row, in order, with what they need.

    Collective: every rank must call.

    Args:
        chosen: a type may be left out.
        computable: node type -> [N] bool, the rows that are computed of tensors that parts begin
            with; the others are there. None: all are there.
    """
    found, plan = list[tuple[Part, Need]](), excerpts.plan
    types = plan.program.types
    names = dict.fromkeys(plan.program.results.values())
    wants = {name: chosen[types[name]] for name in names if types[name] in chosen}
    for part in reversed(parts):
        made = {step.out for op in part.ops for step in op.steps}
        due = {name: wants.pop(name) for name in list(wants) if name in made}
        if computable is not None:
            due = {name: rows for name, rows in due.items() if bool(rows.any())}
        if not due:
            continue
        with on_one_thread():
            excerpts.open(part)
            need = excerpts.need(part, due, neighbours)
        found.insert(0, (part, need))
        if computable is None:
            continue
        for name in part.starts:
            rows = need.nodes.get(types[name])
            if rows is not None:
                rows = rows & computable[types[name]]
                join(wants, name, rows)
    return found


class Asked:
    """Some rows of the results of a run that keeps none, in one part: nothing is there but what
    its first operation begins with."""

    def __init__(self, engine: Engine, chosen: Chosen, first: int) -> None:
        self._engine, self._chosen = engine, chosen
        self.excerpts = Excerpts(engine, uses_up=True)
        self._rows = dict[str, torch.Tensor]()
        part = all_of(self.excerpts.plan, first)
        with on_one_thread():
            self.excerpts.open(part)
            neighbours = _near_all(engine, self.excerpts)
        ((_, self._need),) = needed(self.excerpts, [part], chosen, neighbours=neighbours)
        self.parts = [part]
        self._note()

    def need(self, _part: Part) -> Need:
        """What the only part needs."""
        return self._need

    def put(self, _part: Part, made: Made) -> None:
        """Take the rows that are asked for."""
        whole = self._engine.whole
        for key, name in whole.program.results.items():
            of_type, rows = whole.program.types[name], made.results[key]
            ours = own_rows(whole, self._chosen, of_type)
            ours = ours[made.excerpt.of_ours(whole, of_type, "rows")]
            self._rows[key] = rows[ours.to(rows.device)]

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> [k, D'] float32, its chosen rows of our sub-range, in their order."""
        return self._rows

    def _note(self) -> None:
        """Note what is gone over. Collective: every rank must call."""
        facts, steps = self._engine.ctx.graph_facts.chosen, self._engine.plan.program.steps
        facts.edges = sum(self.excerpts.count_edges(self._need.graphs).values())
        every = self.excerpts.count_edges()
        read = {(step.layer, step.relation) for step in steps if isinstance(step, EdgeStep)}
        of_relation = {relation: count for (_, relation), count in every.items()}
        facts.all_edges = sum(every.get(key, of_relation.get(key[1], 0)) for key in read)


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


def own_rows(whole: Execution, chosen: Chosen, node_type: str) -> Rows:
    """[N/(P*M)] bool, which rows of our sub-range are chosen."""
    first, last = whole.ranges[node_type].worker(whole.grid.rank)
    return chosen[node_type][first:last]


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


class AskedOverKept:
    """Some rows of the results, on one worker, over the rows that a version has kept.

    Args:
        engine: its graphs have the in-edges of the chosen nodes and of all new ones.
        read: is called once for each node type, with the nodes whose features are needed.
        chosen: a type may be left out.

    Raises:
        Damaged: what was kept is not what was written, or not of this model.
    """

    def __init__(self, engine: Engine, read: ReadFeatures, kept: KeptRows, chosen: Chosen) -> None:
        self._engine, self._chosen = engine, chosen
        self._computable = {of: before < 0 for of, before in kept.before.items()}
        for of, rows in chosen.items():
            self._computable[of] = self._computable[of] | rows
        self.excerpts = KeptExcerpts(engine, kept, self._computable)
        plan, row_type = self.excerpts.plan, engine.ctx.job.spec.inference.rows
        parts, self._seals = parts_of(plan), dict[int, Seal]()
        for part in parts[:-1]:
            self._seals[part.end.at] = sealed_end(kept.store, plan, part.end, row_type, kept.basis)
        self._needs, self._edges = dict[int, Need](), 0
        self.parts = list[Part]()
        for part, need in needed(self.excerpts, parts, chosen, self._computable):
            self.parts.append(part)
            self._needs[part.first] = need
            self._check(need)
        self._features = {
            of: SomeFeatures(rows, read(of, rows)) for of, rows in self._read_features().items()
        }
        self.excerpts.take(self._features)

    def need(self, part: Part) -> Need:
        """What was found to be needed."""
        self.excerpts.go_on(self._seals.get(part.first))
        self.excerpts.open(part)
        need = self._needs[part.first]
        self._edges += sum(self.excerpts.count_edges(need.graphs).values())
        return need

    def put(self, part: Part, made: Made) -> None:
        """Keep the rows that were computed, for later parts."""
        execution, types = made.execution, part.plan.program.types
        for name, rows in self._needs[part.first].results.items():
            shard = execution.tensors.converted(name, "rows", execution.channel(0))
            self.excerpts.keep(name, rows, shard.data[rows[made.excerpt.rows[types[name]]]])

    def results(self) -> OverKept:
        """The rows that are asked for, and what they were computed from."""
        program = self._engine.plan.program
        computed = {of: torch.zeros_like(rows) for of, rows in self._computable.items()}
        made = {name: rows for need in self._needs.values() for name, rows in need.results.items()}
        for name, rows in made.items():
            computed[program.types[name]] |= rows
        return OverKept(
            # A later layer may have needed rows of more nodes.
            rows={
                key: self.excerpts.values(name)[self._chosen[program.types[name]][made[name]]]
                for key, name in program.results.items()
                if name in made and program.types[name] in self._chosen
            },
            computed=computed,
            features=self._features,
            edges=self._edges,
        )

    def _check(self, need: Need) -> None:
        """All edges that a part reads are there."""
        for (_, relation), rows in need.graphs.items():
            beyond = rows & ~self._computable[ends_of(relation)[1]]
            assert not bool(beyond.any()), f"in-edges of {relation} are not there"

    def _read_features(self) -> dict[str, Rows]:
        """Node type -> the nodes whose features the parts read."""
        plan, read = self.excerpts.plan, dict[str, Rows]()
        for of, name in plan.program.inputs.items():
            some = [need.nodes[of] for first, need in self._needs.items()
                    if of in need.nodes and first <= plan.last_reads.get(name, -1)]  # fmt: skip
            if some:
                read[of] = torch.stack(some).any(0)
        return read
