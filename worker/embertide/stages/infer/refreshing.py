"""Layers of which only the rows that changed are computed; the others are an earlier run's.

From one end of a layer to the next the rows that changed are computed in an excerpt of the graph
(:mod:`embertide.stages.infer.excerpt`), and put among the rows that the earlier run has kept. A row
that has not moved by more than the tolerance stays as it was kept, and the rows that are made of it
are not computed for its sake: what is kept of a row is what they were made of. So each row is
within the tolerance of what its layer makes of the rows before, however many runs have gone on
from one another. A few rows that did not change are computed too, and must agree with what was
kept. Whatever is in doubt ends in :class:`Doubt`, and all rows are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from embertide.context import RunContext
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import Loaded, Shard
from embertide.plans.boundaries import Boundary, boundaries, boundary_digest, results_of
from embertide.plans.dirty import changed_inputs, dirty_in
from embertide.plans.plan import Plan
from embertide.plans.wanted import Rows
from embertide.primitives.node_sets import any_rank
from embertide.selfcheck.checker import Checker
from embertide.selfcheck.draw import draw
from embertide.stages.infer.beside import Beside
from embertide.stages.infer.doubt import agree
from embertide.stages.infer.excerpt import Excerpt
from embertide.stages.infer.excerpt_run import PRIMITIVE, ExcerptRun, placed_plan
from embertide.stages.infer.kept_shards import kept_distances, kept_exact, kept_shard
from embertide.stages.infer.measuring import Measured, measure
from embertide.stages.infer.moved import distances, finite_rows, moved_rows, within
from embertide.stages.infer.restoring import place_of
from embertide.stages.infer.running import results_in_rows
from embertide.stages.infer.sparing import Sparing
from embertide.stages.infer.taking_over import Refreshing
from embertide.steps.base import EdgeStep
from embertide.steps.execution import Execution
from embertide.telemetry.clock import Clock
from embertide.versions.layers import seals
from embertide.versions.layers.patches import EarlierRows
from embertide.versions.layers.seals import Damaged, KeptTensor, Seal

if TYPE_CHECKING:
    from embertide.stages.infer.keeping import LayerKeeper

OTHER_WAY = (
    "layer {layer} was kept by {by}, which computed it in another way than version {version}: on"
    " another grid, or with other kernels"
)
AUDIT = "rows of {name} that did not change have other bits than those that were kept"
MOVED = (
    "rows of {name} that did not change are further than the tolerance from those that were kept"
)
NOT_FINITE = (
    "rows of {name} that did not change are not finite, so that their distance from those that"
    " were kept is unknown (refresh.tolerance)"
)
AUDITED_ROWS = 64
"""Rows that did not change and are computed all the same, of each node type and layer."""


@dataclass(frozen=True)
class _Part:
    """The operations from one end of a layer to the next."""

    first: int
    end: Boundary
    seal: Seal


def refresh(
    ctx: RunContext,
    whole: Execution,
    plan: Plan,
    loaded: Mapping[str, Loaded],
    refreshing: Refreshing,
    clock: Clock,
    checker: Checker | None,
    keeper: LayerKeeper | None,
) -> dict[str, torch.Tensor]:
    """Key of a result -> our rows of it. Collective: every rank must call.

    Args:
        whole: holds the tensors of all rows where a layer ends; it runs nothing.
        loaded: the features, which stay as they are.

    Raises:
        Doubt: all rows must be computed.
    """
    excerpts, placed = ExcerptRun(ctx, whole, loaded, checker), placed_plan(plan)
    exact = ExcerptRun(ctx, whole, loaded, None)
    if refreshing.tolerance > 0:
        # Before columns of the graphs are dropped, which they are once a layer has all rows.
        exact.open(placed.ops)
    work, measured = _Refresh(ctx, whole, placed, excerpts, refreshing), Measured()
    for part in work.parts():
        if keeper is not None:
            keeper.before(part.first)
        with clock.layer(part.end.layer - 1):
            ctx.progress("infer", part.first / len(plan.ops), part.end.layer, plan.program.layers)
            shards = work.run(part)
        if keeper is not None:
            keeper.after()
            keeper.goes_on_from(work.earlier(part), work.beside)
        whole.tensors.restore(shards, _freed(plan, part, shards))
        if refreshing.tolerance > 0 and part.first == 0:
            exact.corrects({name: rows for (name, _), rows in work.beside.items()})
            with clock.layer(part.end.layer - 1):
                first = part.end.at if part.end.at < len(plan.ops) else 0
                measured = measure(exact, placed, whole, first, refreshing)
    ctx.progress("infer", 1.0, plan.program.layers, plan.program.layers)
    results = results_in_rows(whole)
    if refreshing.tolerance > 0:
        measured.compare(whole, results, refreshing, ctx.graph_facts.refresh)
    return results


def _freed(plan: Plan, part: _Part, there: Mapping[str, Shard]) -> set[str]:
    """What no operation after a part reads; features stay, for a run of all rows."""
    freed = {name for op in plan.ops[part.first : part.end.at] for name in op.frees}
    return freed - set(plan.program.inputs.values()) - set(there)


class _Refresh:
    """Computes part after part."""

    def __init__(
        self,
        ctx: RunContext,
        whole: Execution,
        plan: Plan,
        excerpts: ExcerptRun,
        refreshing: Refreshing,
    ) -> None:
        self._ctx, self._whole, self._excerpts = ctx, whole, excerpts
        self._plan, self._refreshing = plan, refreshing
        self._facts = ctx.graph_facts.refresh
        self._facts.begin()
        self._moved: dict[str, Rows] = changed_inputs(plan, refreshing.changes)
        self._same_places: dict[str, bool] = {}
        self._sparing = Sparing(whole, excerpts, plan, refreshing)
        self.beside: dict[tuple[str, seals.Beside], Beside] = {}

    def parts(self) -> list[_Part]:
        """The operations between ends of layers of which all rows were kept.

        Collective: every rank must call.
        """
        plan, row_type = self._plan, self._ctx.job.spec.inference.rows
        ends, parts, first, why = [*boundaries(plan), results_of(plan)], list[_Part](), 0, ""
        for end in ends:
            name = boundary_digest(plan, end, row_type, self._refreshing.basis)
            try:
                seal = self._refreshing.store.sealed(name)
                if seal is None:
                    why = why or f"layer {end.layer} was not kept"
                    continue
                self._check(seal)
            except Damaged as error:
                why = why or str(error)
                continue
            parts.append(_Part(first, end, seal))
            first = end.at
        self._agree(why)
        return parts

    def _check(self, seal: Seal) -> None:
        """Refuse rows that were computed, or are multiplied by factors, in another way than this
        run's."""
        store = self._refreshing.store
        if seal.how != self._refreshing.how:
            # An attempt of the same inputs, on another grid, has kept it before that version could.
            raise Damaged(
                OTHER_WAY.format(layer=seal.layer, by=seal.version, version=store.version)
            )
        for tensor in seal.tensors:
            known = tensor.name in self._whole.program.widths
            if not known or tensor.scaled != (tensor.name in self._whole.scaled):
                raise Damaged(f"{store.uri}: {tensor.name} was kept in another way")

    def run(self, part: _Part) -> dict[str, Shard]:
        """Tensor -> our shard of all rows at the end of a part. Collective: all ranks call."""
        types, kept = self._plan.program.types, {t.name: t for t in part.seal.tensors}
        ops = self._plan.ops[part.first : part.end.at]
        made = self._made(part)
        names = [name for name in part.end.tensors if name in made]
        with on_one_thread():
            shards = self._kept(part, [kept[name] for name in names])
            self._excerpts.open(ops)
            every = dirty_in(
                self._plan, ops, self._moved, self._refreshing.changes, self._excerpts.targets
            )
            dirty = {name: every[name] for name in names}
            dirty |= self._worth_it(part, shards, dirty)
            audited = {n: self._audited(part, types[n]) & ~dirty[n] for n in names}
        self._count(part, every | self._within_types(part, every, dirty))
        results = {name: dirty[name] | audited[name] for name in names}
        computed = self._excerpts.run(self._plan, part.first, part.end.at, results)
        with on_one_thread():
            audit = [
                self._put(computed, shards[n], dirty[n], audited[n], n, self._is_read(part, n))
                for n in names
            ]
            for name in self._sparing.far:
                self.beside[name, "bounds"] = self._sparing.beside(name, shards[name])
            self._sparing.forget({name for op in ops for name in op.frees})
        self._agree(next(filter(None, audit), ""))
        return shards

    def _worth_it(
        self, part: _Part, shards: Mapping[str, Shard], dirty: Mapping[str, Rows]
    ) -> dict[str, Rows]:
        """Tensor -> the rows to compute, where others cannot have moved enough.

        Collective: every rank must call.
        """
        kept = {name: rows for (name, kind), rows in self.beside.items() if kind == "bounds"}
        if not part.first or self._refreshing.tolerance == 0:
            self._sparing.far = {}
            return {}
        ops = self._plan.ops[part.first : part.end.at]
        spared = self._sparing.rows(ops, dirty, shards, kept)
        self._facts.unmoved += sum(int(rows.sum()) for rows in spared.values())
        return {name: dirty[name] & ~rows for name, rows in spared.items()}

    def _within_types(
        self, part: _Part, every: Mapping[str, Rows], dirty: Mapping[str, Rows]
    ) -> dict[str, Rows]:
        """Tensor that a part makes -> its rows that are made of some of the rows to compute."""
        types, computed = self._plan.program.types, dict[str, Rows]()
        for name, rows in dirty.items():
            of_type = types[name]
            computed[of_type] = rows | computed[of_type] if of_type in computed else rows
        ops = self._plan.ops[part.first : part.end.at]
        outs = (step.out for op in ops for step in op.steps)
        return {out: every[out] & computed[types[out]] for out in outs if types[out] in computed}

    def earlier(self, part: _Part) -> dict[str, EarlierRows]:
        """Tensor of a part that was run -> the rows of it that were kept, and those that moved;
        none of node types whose nodes are not where they were."""
        types, made = self._plan.program.types, self._made(part)
        return {
            tensor.name: EarlierRows(
                self._refreshing.store.key, tensor, self._moved[tensor.name].numpy()
            )
            for tensor in part.seal.tensors
            if tensor.name in made and self._stays(types[tensor.name])
        }

    def _stays(self, node_type: str) -> bool:
        """Whether each node has the dense id that it had; those that are gone had the last ones."""
        if node_type not in self._same_places:
            before = self._refreshing.before[node_type]
            self._same_places[node_type] = bool((before == torch.arange(len(before))).all())
        return self._same_places[node_type]

    def _made(self, part: _Part) -> set[str]:
        """The tensors that a part makes, and leaves to later ones."""
        made = {op.out for op in self._plan.ops[part.first : part.end.at]}
        return made & set(part.end.tensors)

    def _is_read(self, part: _Part, name: str) -> bool:
        """Whether an operation after a part reads a tensor."""
        later = self._plan.ops[part.end.at :]
        return any(name in step.reads() for op in later for step in op.steps)

    def _count(self, part: _Part, dirty: Mapping[str, Rows]) -> None:
        """Count what a part computes of the rows that changed."""
        ops, results = self._plan.ops[part.first : part.end.at], self._plan.program.results.values()
        steps = [step for op in ops for step in op.steps]
        for step in (step for step in steps if isinstance(step, EdgeStep)):
            rows = {(step.layer, step.relation): dirty[step.out]}
            self._facts.edges += sum(self._excerpts.count_edges(rows).values())
        made = {op.out for op in ops}
        self._facts.rows += sum(int(dirty[n].sum()) for n in dict.fromkeys(results) if n in made)

    def _audited(self, part: _Part, node_type: str) -> Rows:
        """[N] bool, some rows that are computed although they did not change, or may have."""
        count = self._whole.ranges[node_type].nodes
        rows = torch.zeros(count, dtype=torch.bool)
        drawn = draw(min(AUDITED_ROWS, count), count, self._refreshing.seed, part.end.layer)
        rows[torch.from_numpy(drawn)] = True
        return rows

    def _kept(self, part: _Part, tensors: list[KeptTensor]) -> dict[str, Shard]:
        """Our shards of the rows that were kept; of new nodes they mean nothing.

        Collective: every rank must call.
        """
        shards, why = dict[str, Shard](), ""
        whole, refreshing = self._whole, self._refreshing
        self.beside = {}
        try:
            shards = {tensor.name: kept_shard(whole, refreshing, tensor) for tensor in tensors}
            for tensor in tensors if refreshing.tolerance > 0 else ():
                if part.first == 0 and self._is_read(part, tensor.name):
                    self.beside[tensor.name, "exact"] = kept_exact(whole, refreshing, tensor)
                elif part.first > 0:
                    self.beside[tensor.name, "bounds"] = kept_distances(whole, refreshing, tensor)
        except Damaged as error:
            why = str(error)
        self._agree(why)
        return shards

    def _put(
        self,
        computed: tuple[Excerpt, Execution],
        shard: Shard,
        dirty: Rows,
        audited: Rows,
        name: str,
        is_read: bool,
    ) -> str:
        """Put rows that were computed among those that were kept; says what is wrong of these.

        Rows of a tensor that later operations read are put where they have moved. Collective:
        every rank must call.

        Args:
            dirty: [N] bool, the rows that changed, or may have.
            audited: [N] bool, other rows, which must not have moved.
        """
        excerpt, execution = computed
        of_type, whole = self._plan.program.types[name], self._whole
        values = execution.tensors.converted(name, shard.layout, execution.channel(0)).data
        (first, last), _ = place_of(whole, name, shard.layout)
        every = excerpt.of_ours(whole, of_type, shard.layout)
        # The others are there for those that read them.
        wanted = (dirty | audited)[first:last][every].nonzero().squeeze(1)
        ours, values = every[wanted], values[wanted]
        may_differ = is_read or name in self._sparing.far
        tolerance = self._refreshing.tolerance if may_differ else 0.0
        channel = whole.exchange.channel("feature", PRIMITIVE) if shard.layout == "tile" else None
        new = self._refreshing.before[of_type][first:last][ours] < 0
        ours_dirty = dirty[first:last][ours]
        if tolerance > 0:
            distance, norm = distances(shard.data[ours], values, channel)
            distance[new] = float("inf")
            moved = ~within(distance, tolerance, norm)
        else:
            moved = moved_rows(shard.data[ours], values, 0.0, channel) | new
        if is_read or tolerance == 0:
            put = ours_dirty & moved
        else:
            put = ours_dirty & (moved_rows(shard.data[ours], values, 0.0, channel) | new)
            distance[ours_dirty] = 0.0
        if tolerance > 0:
            some = first + ours[ours_dirty], distance[ours_dirty], put[ours_dirty]
            self._sparing.computed(name, dirty, *some)
        shard.data[ours[put]] = values[put]
        if (name, "exact") in self.beside:
            kept = self.beside[name, "exact"]
            self.beside[name, "exact"] = kept.after(shard, ours, values, ours_dirty)
        rows = torch.zeros(len(dirty), dtype=torch.bool)
        rows[first + ours[put]] = True
        self._moved[name] = any_rank(whole.exchange, rows, PRIMITIVE)
        if is_read:
            self._facts.unmoved += int(dirty.sum()) - int(self._moved[name].sum())
        wrong = moved & audited[first:last][ours]
        if not bool(wrong.any()):
            return ""
        if tolerance == 0:
            return AUDIT.format(name=name)
        rows_of_both = torch.cat([values[wrong], shard.data[ours[wrong]]])
        finite = bool(finite_rows(rows_of_both, channel).all())
        return (MOVED if finite else NOT_FINITE).format(name=name)

    def _agree(self, why: str) -> None:
        agree(self._whole.exchange, why)
