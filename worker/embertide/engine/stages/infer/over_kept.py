"""Rows of some nodes, computed layer by layer over the rows that a version has kept of all others.

A node that is asked for, and a new one among the in-neighbours that need it, has its own row
computed in each layer. The rows of all other neighbours are read, so that a layer goes over the
in-edges of few nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.arrangement import Arrangement
from embertide.engine.stages.infer.excerpt_run import placed_plan
from embertide.engine.stages.infer.executing import executing
from embertide.engine.stages.infer.kept_rows import KeptExcerpts, KeptRows, SomeFeatures
from embertide.errors import InputError
from embertide.facts.telemetry.clock import Clock
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import Loaded
from embertide.program.plans.boundaries import Boundary, boundaries, boundary_digest, results_of
from embertide.program.plans.dirty import ends_of
from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import GraphRows, Rows, read_at_sources
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.execution import Graphs
from embertide.program.steps.propagate import Propagate
from embertide.program.steps.reach import Reach
from embertide.program.steps.run import Run

NOT_OVER_KEPT = (
    "--over-kept: {why}, so that rows cannot be computed over kept ones; leave it out, which"
    " computes all that the rows are made of"
)
NOT_KEPT = (
    "{uri}: layer {layer} of this model was not kept (its steps or weights, or inference.rows, are"
    " others now, or `embertide layers --remove` has removed it)"
)


ReadFeatures = Callable[[str, Rows], torch.Tensor]
"""Node type and [N] bool -> [k, D] float32, the features of these nodes, in their order."""


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


@dataclass
class _Part:
    """The operations from one end of a layer to the next.

    Attributes:
        starts: the kept tensors that they begin with, in ``seal``; none of the first part.
        results: tensor -> [N] bool, the rows of it that are computed.
        rows: node type -> [N] bool, the nodes of which any tensor is read.
    """

    first: int
    end: Boundary
    starts: tuple[str, ...]
    seal: Seal | None
    results: dict[str, Rows]
    rows: dict[str, Rows]
    graphs: GraphRows


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
    first = 0
    for end in (*boundaries(plan), results_of(plan)):
        steps = [step for op in plan.ops[first : end.at] for step in op.steps]
        if why := _why_more(steps, sampled=sampled):
            raise InputError(NOT_OVER_KEPT.format(why=why))
        first = end.at


def _why_more(steps: list[Step], *, sampled: bool) -> str:
    """What steps between two ends of layers need of neighbours; "": kept rows are enough."""
    reached = set[str]()
    for step in steps:
        name = f"{step.out} ({step.kind_name}, layer {step.layer + 1})"
        if step.reach is Reach.GRAPH:
            return f"{name} needs a statistic over all nodes"
        degrees = step.degrees_read | step.degrees_counted
        if sampled and degrees:
            return f"{name} reads degrees of samples"
        if ("out", True) in degrees:
            return f"{name} reads sums of the weights of out-edges"
        if not isinstance(step, EdgeStep):
            if reached.intersection(step.reads()):
                reached.add(step.out)
            continue
        several = isinstance(step, Propagate) and step.times > 1
        if several or reached.intersection(read_at_sources(step)):
            return f"{name} reads sums of its neighbours within one layer"
        reached.add(step.out)
    return ""


def infer_over_kept(
    ctx: RunContext,
    layers: Arrangement,
    graphs: Graphs,
    loaded: dict[str, Loaded],
    locations: Mapping[str, torch.Tensor],
    features: ReadFeatures,
    kept: KeptRows,
    chosen: Mapping[str, Rows],
    clock: Clock,
) -> OverKept:
    """Compute the rows of some nodes on one worker.

    Args:
        graphs: have the in-edges of the chosen nodes and of all new ones.
        loaded, locations: see :func:`embertide.engine.stages.infer.infer`; they say where features
            are, which ``features`` reads.
        features: is called once for each node type, with the nodes whose features are needed.
        chosen: node type -> [N] bool, the rows of its results that are wanted; a type may be left
            out.

    Raises:
        InputError: the model needs more of neighbours than the rows that are kept.
        Damaged: what was kept is not what was written, or not of this model.
    """
    check_over_kept(layers.plan, sampled=ctx.job.spec.inference.fanout != "full")
    whole, plan = executing(ctx, layers, graphs, loaded, locations)
    computed = {of: before < 0 for of, before in kept.before.items()}
    for of, rows in chosen.items():
        computed[of] = computed[of] | rows
    with torch.inference_mode():
        excerpts = KeptExcerpts(ctx, whole, kept, computed)
        work = _OverKept(ctx, placed_plan(plan), excerpts, features, kept, computed)
        return work.run(chosen, clock)


class _OverKept:
    """Finds backward which rows each part needs, and computes them forward."""

    def __init__(
        self,
        ctx: RunContext,
        plan: Plan,
        excerpts: KeptExcerpts,
        read: ReadFeatures,
        kept: KeptRows,
        computable: Mapping[str, Rows],
    ) -> None:
        self._ctx, self._plan, self._excerpts, self._kept = ctx, plan, excerpts, kept
        self._read, self._computable = read, computable
        self._edges = 0

    def run(self, chosen: Mapping[str, Rows], clock: Clock) -> OverKept:
        """See :func:`infer_over_kept`."""
        program, results = self._plan.program, dict[str, torch.Tensor]()
        parts = self._needed(self._parts(), chosen)
        needed = self._features(parts)
        features = {of: SomeFeatures(rows, self._read(of, rows)) for of, rows in needed.items()}
        self._excerpts.take(features)
        for part in parts:
            with clock.layer(part.end.layer - 1):
                self._excerpts.go_on(part.seal)
                results |= self._compute(part)
        computed = {of: torch.zeros_like(rows) for of, rows in self._computable.items()}
        made = {name: rows for part in parts for name, rows in part.results.items()}
        for name, rows in made.items():
            computed[program.types[name]] |= rows
        return OverKept(
            # A later layer may have needed rows of more nodes.
            rows={
                key: results[name][chosen[program.types[name]][made[name]]]
                for key, name in program.results.items()
                if name in made and program.types[name] in chosen
            },
            computed=computed,
            features=features,
            edges=self._edges,
        )

    def _parts(self) -> list[_Part]:
        """The operations between ends of layers, each of which was kept."""
        parts, first, seal = list[_Part](), 0, None
        starts: tuple[str, ...] = ()
        for end in (*boundaries(self._plan), results_of(self._plan)):
            parts.append(_Part(first, end, starts, seal, {}, {}, {}))
            if end.at < len(self._plan.ops):
                row_type = self._ctx.job.spec.inference.rows
                seal = sealed_end(self._kept.store, self._plan, end, row_type, self._kept.basis)
                first, starts = end.at, end.tensors
        return parts

    def _ops(self, part: _Part) -> tuple[Run, ...]:
        return self._plan.ops[part.first : part.end.at]

    def _needed(self, parts: list[_Part], chosen: Mapping[str, Rows]) -> list[_Part]:
        """The parts that compute any row, with these rows."""
        types = self._plan.program.types
        names = dict.fromkeys(self._plan.program.results.values())
        wants = {name: chosen[types[name]] for name in names if types[name] in chosen}
        for part in reversed(parts):
            made = {step.out for op in self._ops(part) for step in op.steps}
            due = {name: wants.pop(name) for name in list(wants) if name in made}
            part.results = {name: rows for name, rows in due.items() if bool(rows.any())}
            if not part.results:
                continue
            with on_one_thread():
                self._excerpts.open(self._ops(part))
                part.graphs, part.rows = self._excerpts.wanted(
                    self._plan, self._ops(part), part.results
                )
            self._edges += sum(self._excerpts.count_edges(part.graphs).values())
            self._check(part)
            for name in part.starts:
                rows = part.rows.get(types[name])
                if rows is not None:
                    rows = rows & self._computable[types[name]]
                    wants[name] = rows | wants[name] if name in wants else rows
        return [part for part in parts if part.results]

    def _check(self, part: _Part) -> None:
        """All edges that the part reads are there."""
        for (_, relation), rows in part.graphs.items():
            beyond = rows & ~self._computable[ends_of(relation)[1]]
            assert not bool(beyond.any()), f"in-edges of {relation} are not there"

    def _compute(self, part: _Part) -> dict[str, torch.Tensor]:
        """Tensor -> its rows that are computed, in order."""
        self._excerpts.open(self._ops(part))
        excerpt, execution = self._excerpts.run(self._plan, part.first, part.end.at, part.results)
        values = dict[str, torch.Tensor]()
        for name, rows in part.results.items():
            shard = execution.tensors.converted(name, "rows", execution.channel(0))
            own = rows[excerpt.rows[self._plan.program.types[name]]]
            values[name] = shard.data[own]
            self._excerpts.keep(name, rows, values[name])
        return values

    def _features(self, parts: list[_Part]) -> dict[str, Rows]:
        """Node type -> the nodes whose features the parts read."""
        plan, read = self._plan, dict[str, Rows]()
        for of, name in plan.program.inputs.items():
            some = [part.rows[of] for part in parts
                    if of in part.rows and part.first <= plan.last_reads.get(name, -1)]  # fmt: skip
            if some:
                read[of] = torch.stack(some).any(0)
        return read
