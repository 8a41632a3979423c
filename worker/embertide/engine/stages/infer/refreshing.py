"""Layers of which only the rows that changed are computed; the others are an earlier run's.

From one end of a layer to the next the rows that changed are computed in an excerpt of the graph
(:mod:`embertide.engine.stages.infer.excerpt`), and put among the rows that the earlier run has
kept. A row that has not moved by more than the tolerance stays as it was kept, and the rows that
are made of it are not computed for its sake: what is kept of a row is what they were made of. So
each row is within the tolerance of what its layer makes of the rows before, however many runs have
gone on from one another. A few rows that did not change are computed too, and must agree with what
was kept. Whatever is in doubt ends in :class:`Doubt`, and all rows are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.beside import Beside
from embertide.engine.stages.infer.computed_rows import ComputedRows, Moves
from embertide.engine.stages.infer.doubt import agree
from embertide.engine.stages.infer.excerpt_run import PRIMITIVE, ExcerptRun, placed_plan
from embertide.engine.stages.infer.kept_shards import kept_distances, kept_exact, kept_shard
from embertide.engine.stages.infer.measuring import Measured, measure
from embertide.engine.stages.infer.refreshed_parts import RefreshedPart, find_parts
from embertide.engine.stages.infer.running import results_in_rows
from embertide.engine.stages.infer.sparing import Sparing
from embertide.engine.stages.infer.taking_over import Refreshing
from embertide.facts.telemetry.clock import Clock
from embertide.graph.node_sets import any_rank
from embertide.io.versions.layers import seals
from embertide.io.versions.layers.patches import EarlierRows
from embertide.io.versions.layers.seals import Damaged
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import Loaded, Shard
from embertide.program.plans.dirty import changed_inputs, dirty_in
from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import Rows
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.draw import draw
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.execution import Execution

if TYPE_CHECKING:
    from embertide.engine.stages.infer.keeping import LayerKeeper

AUDITED_ROWS = 64
"""Rows that did not change and are computed all the same, of each node type and layer."""


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
    row_type = ctx.job.spec.inference.rows
    for part in find_parts(placed, whole, row_type, refreshing):
        if keeper is not None:
            keeper.before(part.first)
        with clock.layer(part.end.layer - 1):
            ctx.progress("infer", part.first / len(plan.ops), part.end.layer, plan.program.layers)
            shards = work.run(part)
        if keeper is not None:
            keeper.after()
            keeper.goes_on_from(work.earlier(part), work.beside)
        whole.tensors.restore(shards, _freed(part, shards))
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


def _freed(part: RefreshedPart, there: Mapping[str, Shard]) -> set[str]:
    """What no operation after a part reads; features stay, for a run of all rows."""
    freed = {name for op in part.ops for name in op.frees}
    return freed - set(part.plan.program.inputs.values()) - set(there)


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

    def run(self, part: RefreshedPart) -> dict[str, Shard]:
        """Tensor -> our shard of all rows at the end of a part. Collective: all ranks call."""
        plan, types, changes = self._plan, self._plan.program.types, self._refreshing.changes
        with on_one_thread():
            shards = self._kept(part)
            self._excerpts.open(part.ops)
            every = dirty_in(plan, part.ops, self._moved, changes, self._excerpts.targets)
            dirty = {name: every[name] for name in shards}
            dirty |= self._worth_it(part, shards, dirty)
            audited = {name: self._audited(part, types[name]) & ~dirty[name] for name in shards}
        self._count(part, every | self._within_types(part, every, dirty))
        results = {name: dirty[name] | audited[name] for name in shards}
        computed = ComputedRows(*self._excerpts.run(plan, part.first, part.end.at, results))
        with on_one_thread():
            why = [self._put(part, computed, n, shards[n], dirty[n], audited[n]) for n in shards]
            for name in self._sparing.far:
                self.beside[name, "bounds"] = self._sparing.beside(name, shards[name])
            self._sparing.forget({name for op in part.ops for name in op.frees})
        agree(self._whole.exchange, next(filter(None, why), ""))
        return shards

    def _worth_it(
        self, part: RefreshedPart, shards: Mapping[str, Shard], dirty: Mapping[str, Rows]
    ) -> dict[str, Rows]:
        """Tensor -> the rows to compute, where others cannot have moved enough.

        Collective: every rank must call.
        """
        kept = {name: rows for (name, kind), rows in self.beside.items() if kind == "bounds"}
        if not part.first or self._refreshing.tolerance == 0:
            self._sparing.far = {}
            return {}
        spared = self._sparing.rows(part.ops, dirty, shards, kept)
        self._facts.unmoved += sum(int(rows.sum()) for rows in spared.values())
        return {name: dirty[name] & ~rows for name, rows in spared.items()}

    def _within_types(
        self, part: RefreshedPart, every: Mapping[str, Rows], dirty: Mapping[str, Rows]
    ) -> dict[str, Rows]:
        """Tensor that a part makes -> its rows that are made of some of the rows to compute."""
        types, computed = self._plan.program.types, dict[str, Rows]()
        for name, rows in dirty.items():
            of_type = types[name]
            computed[of_type] = rows | computed[of_type] if of_type in computed else rows
        outs = (step.out for op in part.ops for step in op.steps)
        return {out: every[out] & computed[types[out]] for out in outs if types[out] in computed}

    def earlier(self, part: RefreshedPart) -> dict[str, EarlierRows]:
        """Tensor of a part that was run -> the rows of it that were kept, and those that moved;
        none of node types whose nodes are not where they were."""
        types = self._plan.program.types
        return {
            tensor.name: EarlierRows(
                self._refreshing.store.key, tensor, self._moved[tensor.name].numpy()
            )
            for tensor in part.seal.tensors
            if tensor.name in part.made and self._stays(types[tensor.name])
        }

    def _stays(self, node_type: str) -> bool:
        """Whether each node has the dense id that it had; those that are gone had the last ones."""
        if node_type not in self._same_places:
            before = self._refreshing.before[node_type]
            self._same_places[node_type] = bool((before == torch.arange(len(before))).all())
        return self._same_places[node_type]

    def _count(self, part: RefreshedPart, dirty: Mapping[str, Rows]) -> None:
        """Count what a part computes of the rows that changed."""
        results = self._plan.program.results.values()
        steps = [step for op in part.ops for step in op.steps]
        for step in (step for step in steps if isinstance(step, EdgeStep)):
            rows = {(step.layer, step.relation): dirty[step.out]}
            self._facts.edges += sum(self._excerpts.count_edges(rows).values())
        made = {op.out for op in part.ops}
        self._facts.rows += sum(int(dirty[n].sum()) for n in dict.fromkeys(results) if n in made)

    def _audited(self, part: RefreshedPart, node_type: str) -> Rows:
        """[N] bool, some rows that are computed although they did not change, or may have."""
        count = self._whole.ranges[node_type].nodes
        rows = torch.zeros(count, dtype=torch.bool)
        drawn = draw(min(AUDITED_ROWS, count), count, self._refreshing.seed, part.end.layer)
        rows[torch.from_numpy(drawn)] = True
        return rows

    def _kept(self, part: RefreshedPart) -> dict[str, Shard]:
        """Our shards of the rows that were kept of what a part makes; of new nodes they mean
        nothing.

        Collective: every rank must call.
        """
        shards, why = dict[str, Shard](), ""
        whole, refreshing = self._whole, self._refreshing
        sealed = {tensor.name: tensor for tensor in part.seal.tensors}
        tensors = [sealed[name] for name in part.made]
        self.beside = {}
        try:
            shards = {tensor.name: kept_shard(whole, refreshing, tensor) for tensor in tensors}
            for tensor in tensors if refreshing.tolerance > 0 else ():
                if part.first == 0 and part.is_read(tensor.name):
                    self.beside[tensor.name, "exact"] = kept_exact(whole, refreshing, tensor)
                elif part.first > 0:
                    self.beside[tensor.name, "bounds"] = kept_distances(whole, refreshing, tensor)
        except Damaged as error:
            why = str(error)
        agree(whole.exchange, why)
        return shards

    def _put(
        self,
        part: RefreshedPart,
        computed: ComputedRows,
        name: str,
        shard: Shard,
        dirty: Rows,
        audited: Rows,
    ) -> str:
        """Put rows that were computed among those that were kept; says what is wrong of these.

        Collective: every rank must call.

        Args:
            dirty: [N] bool, the rows that changed, or may have.
            audited: [N] bool, other rows, which must not have moved.
        """
        whole, refreshing, is_read = self._whole, self._refreshing, part.is_read(name)
        tolerance = refreshing.tolerance if is_read or name in self._sparing.far else 0.0
        new = refreshing.before[self._plan.program.types[name]] < 0
        rows = computed.beside(whole, name, shard, dirty | audited, new)
        of_ours = rows.numbers + rows.first
        moves, is_dirty = Moves.of(rows, tolerance), dirty[of_ours]
        others = audited[of_ours]
        why = rows.problem(name, moves.moved & others, tolerance)
        put = is_dirty & moves.moved
        if tolerance > 0 and not is_read:
            # These rows are published as they are computed; so were those of which no neighbour has
            # moved since then.
            put = is_dirty & rows.differ()
            others &= self._sparing.far[name][of_ours] == 0
            why = why or rows.problem(name, (moves.distance > 0) & others, 0.0)
        if tolerance > 0:
            distance = moves.distance if is_read else torch.zeros_like(moves.distance)
            some = of_ours[is_dirty], distance[is_dirty], put[is_dirty]
            self._sparing.computed(name, dirty, *some)
        rows.put(put)
        if (name, "exact") in self.beside:
            kept = self.beside[name, "exact"]
            self.beside[name, "exact"] = kept.after(shard, rows.numbers, rows.values, is_dirty)
        every = torch.zeros(len(dirty), dtype=torch.bool)
        every[of_ours[put]] = True
        self._moved[name] = any_rank(whole.exchange, every, PRIMITIVE)
        if is_read:
            self._facts.unmoved += int(dirty.sum()) - int(self._moved[name].sum())
        return why
