"""Layers of which only the rows that changed are computed; the others are an earlier run's.

From one end of a layer to the next the rows that changed are computed in an excerpt of the graph
(:mod:`embertide.stages.infer.excerpt`), and put among the rows that the earlier run has kept. A few
rows that did not change are computed too: they must have the bits that were kept. Whatever is in
doubt ends in :class:`Doubt`, and all rows are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from embertide.context import RunContext
from embertide.kernels.memory import empty
from embertide.kernels.torch_threads import on_one_thread
from embertide.layouts import ROW_TYPES, Loaded, Shard
from embertide.plans.boundaries import Boundary, boundaries, boundary_digest, results_of
from embertide.plans.plan import Plan
from embertide.plans.wanted import Rows, wanted_in
from embertide.selfcheck.checker import Checker
from embertide.selfcheck.draw import draw
from embertide.stages.infer.excerpt import Excerpt, excerpt_of
from embertide.stages.infer.excerpt_run import ExcerptRun, placed_plan
from embertide.stages.infer.restoring import as_array, place_of
from embertide.stages.infer.running import results_in_rows, run_op
from embertide.stages.infer.work import LayerWork
from embertide.steps.execution import Execution
from embertide.telemetry.clock import Clock
from embertide.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.versions.layers.store import LayerStore

if TYPE_CHECKING:
    from embertide.stages.infer.keeping import LayerKeeper

AUDIT = "rows of {name} that did not change have other bits than those that were kept"
AUDITED_ROWS = 64
"""Rows that did not change and are computed all the same, of each node type and layer."""


class Doubt(Exception):
    """An earlier run's rows cannot be used, or may not be right; the message says why.

    Raised on all ranks alike.
    """


@dataclass(frozen=True, kw_only=True)
class Refreshing:
    """What a run takes over.

    Attributes:
        store: of the key under which the earlier run has kept its layers.
        before: node type -> [N] int64, the dense id that each node had then; -1: it is new.
        dirty: tensor -> [N] bool, the rows that differ, or may.
        seed: decides which unchanged rows are computed too.
    """

    store: LayerStore
    before: Mapping[str, torch.Tensor]
    dirty: Mapping[str, Rows]
    seed: int


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
) -> dict[str, Shard]:
    """Tensor -> our shard of the results in ``rows``. Collective: every rank must call.

    Args:
        whole: holds the tensors of all rows where a layer ends; it runs nothing.
        loaded: the features, which stay as they are.

    Raises:
        Doubt: all rows must be computed.
    """
    work = _Refresh(ctx, whole, plan, loaded, refreshing, checker)
    for part in work.parts():
        if keeper is not None:
            keeper.before(part.first)
        with clock.layer(part.end.layer - 1):
            ctx.progress("infer", part.first / len(plan.ops), part.end.layer, plan.program.layers)
            shards = work.run(part)
        if keeper is not None:
            keeper.after()
        whole.tensors.restore(shards, _freed(plan, part, shards))
    ctx.progress("infer", 1.0, plan.program.layers, plan.program.layers)
    return {
        name: whole.tensors.to_keep(name) for name in dict.fromkeys(plan.program.results.values())
    }


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
        loaded: Mapping[str, Loaded],
        refreshing: Refreshing,
        checker: Checker | None,
    ) -> None:
        self._ctx, self._whole, self._refreshing = ctx, whole, refreshing
        self._plan = placed_plan(plan)
        self._nodes = {name: ranges.nodes for name, ranges in whole.ranges.items()}
        self._excerpts = ExcerptRun(ctx, whole, loaded, checker)

    def parts(self) -> list[_Part]:
        """The operations between ends of layers of which all rows were kept.

        Collective: every rank must call.
        """
        plan, row_type = self._plan, self._ctx.job.spec.inference.rows
        ends, found, first, why = [*boundaries(plan), results_of(plan)], list[_Part](), 0, ""
        for end in ends:
            name = boundary_digest(plan, end, row_type)
            try:
                seal = self._refreshing.store.sealed(name)
                if seal is None:
                    why = why or f"layer {end.layer} was not kept"
                    continue
                self._check(seal)
            except Damaged as error:
                why = why or str(error)
                continue
            found.append(_Part(first, end, seal))
            first = end.at
        self._agree(why)
        return found

    def _check(self, seal: Seal) -> None:
        """Refuse rows that are multiplied by factors in another way than this run's."""
        for tensor in seal.tensors:
            known = tensor.name in self._whole.program.widths
            if not known or tensor.scaled != (tensor.name in self._whole.scaled):
                raise Damaged(
                    f"{self._refreshing.store.uri}: {tensor.name} was kept in another way"
                )

    def run(self, part: _Part) -> dict[str, Shard]:
        """Tensor -> our shard of all rows at the end of a part. Collective: all ranks call."""
        types, kept = self._plan.program.types, {t.name: t for t in part.seal.tensors}
        ops = self._plan.ops[part.first : part.end.at]
        made = {op.out for op in ops}
        names = [name for name in part.end.tensors if name in made]
        with on_one_thread():
            shards = self._kept([kept[name] for name in names])
            dirty = {name: self._refreshing.dirty[name] for name in names}
            results = {name: dirty[name] | self._audited(part, types[name]) for name in names}
            self._excerpts.open(ops)
            sources = self._excerpts.sources
            wanted, rows = wanted_in(self._plan, ops, results, self._nodes, sources)
            excerpt = excerpt_of(rows, self._nodes, self._whole.ranges)
            execution, checker = self._excerpts.begin(self._plan, part.first, excerpt, wanted)
        self._execute(part, execution, checker)
        with on_one_thread():
            audit = [
                self._put(excerpt, execution, shards[n], results[n] & ~dirty[n], n) for n in names
            ]
        self._agree(next(filter(None, audit), ""))
        return shards

    def _audited(self, part: _Part, node_type: str) -> Rows:
        """[N] bool, some rows that are computed although they did not change, or may have."""
        count, rows = self._nodes[node_type], torch.zeros(self._nodes[node_type], dtype=torch.bool)
        drawn = draw(min(AUDITED_ROWS, count), count, self._refreshing.seed, part.end.layer)
        rows[torch.from_numpy(drawn)] = True
        return rows

    def _kept(self, tensors: list[KeptTensor]) -> dict[str, Shard]:
        """Our shards of the rows that were kept; of new nodes they mean nothing.

        Collective: every rank must call.
        """
        shards, why = dict[str, Shard](), ""
        try:
            shards = {tensor.name: self._read(tensor) for tensor in tensors}
        except Damaged as error:
            why = str(error)
        self._agree(why)
        return shards

    def _read(self, tensor: KeptTensor) -> Shard:
        whole, name = self._whole, tensor.name
        kind, width = whole.tensors.type_of(name), whole.program.widths[name]
        if (tensor.width, ROW_TYPES.get(tensor.dtype)) != (width, kind):
            raise Damaged(f"{self._refreshing.store.uri}: {name} has another width or type")
        (first, last), columns = place_of(whole, name, tensor.layout)
        before = self._refreshing.before[whole.program.types[name]][first:last]
        known = before >= 0
        old = before[known]
        low, high = (int(old.min()), int(old.max()) + 1) if len(old) else (0, 0)
        if high > tensor.rows:
            raise Damaged(f"{self._refreshing.store.uri}: {name} has {tensor.rows} rows")
        rows = empty((high - low, columns[1] - columns[0]), kind)
        self._refreshing.store.read(tensor, (low, high), columns, as_array(rows))
        if len(old) == last - first == high - low and bool((old.diff() == 1).all()):
            return Shard(tensor.layout, rows, width)
        out = empty((last - first, rows.shape[1]), kind)
        out[known] = rows[old - low]
        return Shard(tensor.layout, out, width)

    def _execute(self, part: _Part, execution: Execution, checker: Checker | None) -> None:
        """Run the operations; those that end a model leave their results in ``rows``."""
        work = LayerWork(self._ctx, execution, self._plan.ops)
        for at, op in enumerate(self._plan.ops[part.first : part.end.at], part.first):
            work.begins(op, at / len(self._plan.ops), (at + 1) / len(self._plan.ops))
            run_op(execution, op, at, checker)
            work.done(op)
        if part.end.at == len(self._plan.ops):
            results = results_in_rows(execution)
            if checker:
                checker.results(execution, results)

    def _put(
        self, excerpt: Excerpt, execution: Execution, shard: Shard, audited: Rows, name: str
    ) -> str:
        """Put the rows that were computed among those that were kept; says what is wrong of these.

        Collective: every rank of the feature axis must call.

        Args:
            audited: [N] bool, rows that must have the bits that were kept.
        """
        of_type = self._plan.program.types[name]
        computed = execution.tensors.converted(name, shard.layout, execution.channel(0))
        (first, last), _ = place_of(self._whole, name, shard.layout)
        ours = excerpt.of_ours(self._whole, of_type, shard.layout)
        rows = self._refreshing.dirty[name][first:last][ours]
        same = audited[first:last][ours]
        differ = (_bits(computed.data[same]) != _bits(shard.data[ours[same]])).any()
        shard.data[ours[rows]] = computed.data[rows]
        return AUDIT.format(name=name) if differ else ""

    def _agree(self, why: str) -> None:
        """Collective: every rank must call.

        Raises:
            Doubt: any rank has a reason.
        """
        reasons = [reason for reason in self._whole.exchange.all_objects(why) if reason]
        if reasons:
            raise Doubt(reasons[0])


def _bits(rows: torch.Tensor) -> torch.Tensor:
    return rows.contiguous().view(torch.int32 if rows.dtype == torch.float32 else torch.int16)
