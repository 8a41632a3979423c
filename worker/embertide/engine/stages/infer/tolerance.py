"""Rows that move by no more than a tolerance stay as they were kept: the policy, and its bounds.

A row that has not moved by more than the tolerance stays as it was kept, and the rows that are made
of it are not computed for its sake: what is kept of a row is what they were made of. So each row is
within the tolerance of what its layer makes of the rows before, however many runs have gone on from
one another.

All changes of inputs are followed to the rows that read them. So the rows of the first layer are
computed with the bits of a run of all rows; what they are now stays beside what dependents have
seen, and errors are measured from it on. Of rows of other layers it is kept how far they may be
from what their layer makes of the rows before. Where a layer is sums of neighbours, products and
functions whose values are no farther apart than what they read, a row moves by at most the sum of
how far its neighbours have moved, times norms of the weights. As long as what has added up so is
within the tolerance the row need not be computed. So rows with very many neighbours, which some
change reaches every night, are seldom gone over.

That rows which are not computed have not moved is checked of some of each layer, which are
computed all the same from the rows before.

How wrong the results are is measured: rows are drawn among those that changes may reach, since no
other row has another error than before, and computed over all rows that they are made of, from the
end of the first layer on, or from the features where there is no other layer: with the bits of a
run of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from embertide.engine.stages.infer.base import Doubt, Refreshing
from embertide.engine.stages.infer.excerpts import PRIMITIVE, Excerpts, Need
from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.moved import (
    Beside,
    norms,
    relative_errors,
    within,
)
from embertide.engine.stages.infer.overlay import Overlay, RowsBeside
from embertide.engine.stages.infer.restoring import kept_distances, kept_exact
from embertide.engine.stages.infer.stale import Audit, some_of
from embertide.graph.exchange import Exchange, any_rank
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import KeptTensor
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.boundaries import Part, all_of
from embertide.program.plans.flow import forward, stale_in, stale_inputs
from embertide.program.steps.base import Leader
from embertide.program.steps.execution import Execution
from embertide.program.steps.frontier import Far, Moved, Rows
from embertide.program.steps.op import Op

_ROUNDING = 1.0 + 1e-6
"""By which norms may be larger than they were computed."""
_UP = 1.0 + 1e-6
"""So that a distance is not rounded down where it is kept as float32."""
MEASURED_ROWS = (1, 4, 16, 64, 256)
"""Rows of each result: the last number whose edges are few enough."""
MOST_EDGES = 0.1
"""The share of the edges of a run of all rows that measuring may go over,"""
MOST_TIMES = 1.5
"""or how many times the edges that the fewest rows need, if that is more."""
TOO_WRONG = (
    "of {rows} rows of the results that were computed from exact rows, one is wrong by"
    " {error:.2g} of its norm, more than {limit:g} (refresh.maxError)"
)
TOO_MANY = (
    "{count:,} rows of a worker's first layer stay though they have moved, and what they are now"
    " takes more memory than parts of the tensors that are on disk (refresh.tolerance)"
)
NOT_FINITE = (
    "of {rows} rows of the results that were computed from exact rows, one is not finite, so that"
    " its error cannot be measured (refresh.tolerance)"
)


class Tolerance(Audit):
    """Takes rows that have moved by more than the tolerance, and measures what that does to the
    results.

    Args:
        excerpts: of the run.
    """

    def __init__(self, engine: Engine, excerpts: Excerpts, base: Refreshing) -> None:
        super().__init__()
        self._engine, self._excerpts, self._base = engine, excerpts, base
        self._far = dict[str, Far]()
        """Tensor of the part that runs -> how far rows may be from what their layer makes."""
        self._moved = dict[str, Far]()
        """Tensor of parts before -> how far rows are from those that were kept."""
        for name, stale in stale_inputs(engine.plan, base.changes).items():
            rows = stale.nonzero().squeeze(1)
            self._moved[name] = Far(rows, torch.full(rows.shape, math.inf, dtype=torch.float64))
        self._exact = Excerpts(replace(engine, checker=None), excerpts.store.over())
        # Before columns of the graphs are dropped, which they are once a layer has all rows.
        self._exact.open(all_of(self._exact.plan))
        self._measured = 0
        self._right = dict[str, tuple[torch.Tensor, torch.Tensor]]()
        """Key of a result -> numbers of some of our rows, and what they are in a run of all."""

    def begin(self, part: Part, kept: Kept, tensors: Sequence[KeptTensor]) -> None:
        """See :class:`Audit`."""
        whole, before = self._engine.whole, self._base.before
        self.beside, self._far = {}, {}
        for tensor in tensors:
            if part.first > 0:
                self.beside[tensor.name, "bounds"] = kept_distances(whole, kept, before, tensor)
            elif part.is_read(tensor.name):
                self.beside[tensor.name, "exact"] = kept_exact(whole, kept, before, tensor)

    def spare(
        self, part: Part, stale: Mapping[str, Rows], tensors: Mapping[str, Overlay]
    ) -> dict[str, Rows]:
        """Those that cannot have moved by the tolerance."""
        whole, changes, spared = self._engine.whole, self._base.changes, dict[str, Rows]()
        # Rows that are rounded may move farther than what they are made of.
        if not part.first or whole.row_type != torch.float32 or not have_bounds(part.ops):
            return {}
        types = part.plan.program.types
        none = {name: torch.zeros_like(changes.new[types[name]]) for name in self._moved}
        known = none | stale_inputs(part.plan, changes)
        certain = stale_in(part.plan, part.ops, known, changes, self._excerpts.targets)
        added = bounds(self._excerpts, whole, part.ops, self._moved)
        for name, rows in stale.items():
            kept, own = self.beside[name, "bounds"], tensors[name]
            first, maybe = own.first, rows & ~certain[name]
            before = Far(kept.rows + first, kept.values[:, 0].double())
            self._far[name] = far = Far.sum([added[name], _of_all(whole.exchange, before)])
            # Rows that are not among these have not moved at all.
            ours = far.where(maybe).within(first, first + len(own))
            norm = self._norms(own, ours.rows - first)
            moved = torch.zeros_like(maybe)
            moved[ours.rows[~within(ours.by, self._base.tolerance, norm)]] = True
            spared[name] = maybe & ~any_rank(whole.exchange, moved, PRIMITIVE)
        return spared

    def put(
        self, part: Part, name: str, rows: RowsBeside, stale: Rows, computed: Rows, audited: Rows
    ) -> tuple[Rows, str]:
        """Those that later parts read if they have moved by more than the tolerance; others are
        published as they are computed."""
        is_read, exchange = part.is_read(name), self._engine.whole.exchange
        if not is_read and name not in self._far:
            return super().put(part, name, rows, stale, computed, audited)
        tolerance, of_ours = self._base.tolerance, rows.ids
        distance, norm = rows.distances()
        distance[rows.new] = float("inf")
        moved = ~within(distance, tolerance, norm)
        why, gone = rows.problem(name, moved & audited, tolerance), stale & moved
        if not is_read:
            gone = stale & rows.differ()
            # So were rows of which no neighbour has moved since then.
            same = audited & (self._far[name].at(of_ours) == 0)
            why = why or rows.problem(name, (distance > 0) & same, 0.0)
            # No later part reads how far they have moved.
            distance = torch.zeros_like(distance)
        stay = stale & ~gone & (distance != 0)
        self._moved[name] = _of_all(exchange, Far(of_ours[gone], distance[gone]))
        if name in self._far:
            far = _of_all(exchange, Far(of_ours[stay], distance[stay]))
            self._far[name] = Far.sum([self._far[name].where(~computed), far])
        rows.put(gone)
        if (name, "exact") in self.beside:
            kept = self.beside[name, "exact"]
            exact = kept.after(rows.numbers, rows.values, stale, stay & rows.differ())
            self.beside[name, "exact"] = exact
            room = self._engine.ctx.parts_bytes
            if self._engine.ctx.scratch is not None and exact.values.nbytes > room:
                why = why or TOO_MANY.format(count=len(exact.rows))
        return gone, why

    def ended(self, part: Part, tensors: Mapping[str, Overlay]) -> None:
        """Keep beside the rows how far they may be from what their layer makes."""
        for name, far in self._far.items():
            own = tensors[name]
            ours = far.within(own.first, own.first + len(own))
            values = (ours.by * _UP).float().unsqueeze(1)
            self.beside[name, "bounds"] = Beside(ours.rows - own.first, values.view(own.dtype))
        for name in {name for op in part.ops for name in op.frees}:
            self._moved.pop(name, None)

    def passed(self, part: Part) -> None:
        """After the first part, whose exact rows are known: measure from there on."""
        if part.first > 0:
            return
        for (name, _), exact in self.beside.items():
            self._exact.store.put(name, exact)
        at = part.end.at if part.end.at < len(part.plan.ops) else 0
        rest, program, whole = all_of(self._exact.plan, at), part.plan.program, self._engine.whole
        with on_one_thread():
            drawn, need = self._drawn(rest)
        if need is None:
            return
        made = self._exact.run(rest, need, counted=False)
        self._measured = sum(int(rows.sum()) for rows in drawn.values())
        for key, name in program.results.items():
            if name not in drawn:
                continue
            of_type, execution = program.types[name], made.execution
            rows = made.excerpt.of_ours(whole, of_type, "rows")
            start, stop = whole.ranges[of_type].worker(whole.grid.rank)
            some = drawn[name][start:stop][rows]
            right = execution.tensors.converted(name, "rows", execution.channel(0)).data[some]
            self._right[key] = rows[some], right

    def _drawn(self, rest: Part) -> tuple[dict[str, Rows], Need | None]:
        """Tensor -> [N] bool, the rows of the results to measure, and what they are made of; None:
        changes reach none.

        Raises:
            Doubt: not even one row of each can be computed beside tensors on disk.
        """
        base, limit = self._base, 0.0
        names = dict.fromkeys(rest.plan.program.results.values())
        reached = {name: base.reached[name] for name in names}
        reached = {name: rows for name, rows in reached.items() if bool(rows.any())}
        found: tuple[dict[str, Rows], Need | None] = {}, None
        for count in MEASURED_ROWS if reached else ():
            drawn = {name: some_of(rows, count, base.seed, 0) for name, rows in reached.items()}
            need = self._exact.need(rest, drawn)
            edges = sum(self._exact.count_edges(need.graphs).values())
            if why := self._exact.why_not(rest, need):
                if not found[0]:
                    raise Doubt(why)
                break
            # Where few rows are made of most of the graph, many are made of little more.
            limit = limit or max(MOST_EDGES * base.all_edges, MOST_TIMES * edges)
            if edges > limit:
                break
            found = drawn, need
        return found

    def finish(self, results: Mapping[str, torch.Tensor]) -> None:
        """Note the largest relative error.

        Raises:
            Doubt: it is larger than it may be.
        """
        facts, ours = self._engine.ctx.graph_facts.refresh, [0.0]
        facts.measured = self._measured
        for key, (rows, right) in self._right.items():
            ours += relative_errors(right, results[key][rows]).tolist()
        facts.error = max(self._engine.whole.exchange.all_objects(max(ours)))
        if math.isinf(facts.error):
            raise Doubt(NOT_FINITE.format(rows=facts.measured))
        if not facts.error <= self._base.max_error:
            raise Doubt(
                TOO_WRONG.format(rows=facts.measured, error=facts.error, limit=self._base.max_error)
            )

    def _norms(self, own: Overlay, numbers: torch.Tensor) -> torch.Tensor:
        """[k] float64 of some rows [k] that were kept. Collective: every rank must call."""
        exchange = self._engine.whole.exchange
        channel = exchange.channel("feature", PRIMITIVE) if own.layout == "tile" else None
        return torch.cat([norms(part, channel) for part in own.parts(numbers)])


def have_bounds(ops: Sequence[Op]) -> bool:
    """Whether it is known of all steps of some operations how far their rows move at most."""
    return all(step.has_bounds for op in ops for step in op.steps)


def bounds(
    excerpts: Excerpts, whole: Execution, ops: Sequence[Op], moved: Mapping[str, Far]
) -> dict[str, Far]:
    """Tensor -> how far each row moves at most. Collective: every rank must call.

    Args:
        excerpts: where the graphs of the operations are open.
        moved: tensor that was there before -> how far its rows have moved.
    """
    norms, walk = dict[str, float](), dict[str, Far]()
    channel = whole.exchange.channel("graph", PRIMITIVE)

    def norm(name: str) -> float:
        if name not in norms:
            param = whole.param(name).double()
            norms[name] = float(
                torch.linalg.matrix_norm(param, 2) if param.dim() == 2 else param.abs().max()
            )
        return norms[name] * _ROUNDING

    def partition(name: str) -> tuple[int, int]:
        return whole.ranges_of(name).partition(whole.grid.p)

    def of(name: str) -> Far:
        """How far our partition's rows have moved, at most."""
        return walk[name] if name in walk else moved[name].within(*partition(name))

    def everywhere(name: str) -> Far:
        """How far all rows have moved, at most. Collective: every rank must call."""
        if name not in walk:
            return moved[name]
        rows, by = channel.all_gather(walk[name].rows), channel.all_gather(walk[name].by)
        return Far(torch.cat(rows), torch.cat(by))

    def scaled(reader: Leader, out: str) -> Far:
        factors, far = reader.source_factors(whole), walk[out]
        if factors is None:
            return far
        return far.times(factors[far.rows - partition(out)[0]].double().abs())

    at = Moved(
        execution=whole, ours=of, everywhere=everywhere, norm=norm, edges_of=excerpts.edges_of
    )
    forward(ops, walk, lambda step: step.moves(at), scaled)
    return {name: everywhere(name) for name in dict.fromkeys(op.out for op in ops)}


def _of_all(exchange: Exchange, ours: Far) -> Far:
    """Those of all ranks, of which some may have the same rows, with the same distances.

    Collective: every rank must call.
    """
    if exchange.grid.world == 1:
        return ours
    channel = exchange.channel("world", PRIMITIVE)
    ids, by = (torch.cat(channel.all_gather(of)) for of in (ours.rows, ours.by))
    rows, at = torch.unique(ids, return_inverse=True)
    return Far(rows, torch.zeros(len(rows), dtype=torch.float64).index_put_((at,), by))
