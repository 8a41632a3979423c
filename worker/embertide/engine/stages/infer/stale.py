"""Rows of which only stale ones are computed; the others are those that the base has kept.

From one end of a layer to the next the rows that may differ from the base's are computed in an
excerpt of the graph, and put among the rows that were kept. A few rows that are not stale are
computed too, and must agree with what was kept. Whatever is in doubt ends in :class:`Doubt`, and
all rows are computed. How far a row has to move for its dependents to see it is a policy: any bit
(:class:`Audit`), or more than a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from embertide.engine.stages.infer.base import Doubt, Refreshing, agree, find_parts
from embertide.engine.stages.infer.excerpts import PRIMITIVE, Excerpts, Made, Need
from embertide.engine.stages.infer.loop import Engine, Placement
from embertide.engine.stages.infer.moved import Beside
from embertide.engine.stages.infer.overlay import Overlay, RowsBeside
from embertide.graph.exchange import any_rank
from embertide.io.versions.layers import seals
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, KeptTensor
from embertide.io.versions.layers.writing import EarlierRows
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.boundaries import Part
from embertide.program.plans.flow import stale_in, stale_inputs
from embertide.program.selfcheck.draw import draw
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.frontier import Rows, join

if TYPE_CHECKING:
    from embertide.engine.stages.infer.keeping import LayerKeeper

AUDITED_ROWS = 64
"""Rows that are not stale and are computed all the same, of each node type and layer; and as many
of those that are stale and need not be computed."""


class Audit:
    """What is taken of the rows that a part has computed: those with other bits than were kept.

    Rows that are not stale must have the bits that were kept. A tolerance is another such policy
    (:mod:`embertide.engine.stages.infer.tolerance`).

    Attributes:
        beside: of the part that runs, tensor and kind -> what is kept beside its rows.
    """

    def __init__(self) -> None:
        self.beside: dict[tuple[str, seals.Beside], Beside] = {}

    def begin(self, part: Part, kept: Kept, tensors: Sequence[KeptTensor]) -> None:
        """A part begins, of which these tensors were kept.

        Raises:
            Damaged: what was kept beside them is not what was written.
        """

    def spare(
        self, _part: Part, _stale: Mapping[str, Rows], _tensors: Mapping[str, Overlay]
    ) -> dict[str, Rows]:
        """Tensor -> [N] bool, stale rows that need not be computed. Collective: all ranks call.

        Args:
            _tensors: what was kept of them.
        """
        return {}

    def put(
        self, _part: Part, name: str, rows: RowsBeside, stale: Rows, _all: Rows, audited: Rows
    ) -> tuple[Rows, str]:
        """Put rows in the place of those that were kept; which, and what is wrong of others.

        Collective: every rank must call.

        Args:
            _all: [N] bool, the stale rows that all ranks have computed.
            stale, audited: [k] bool of ``rows``.

        Returns:
            [k] bool, and "" where nothing is wrong.
        """
        moved = rows.differ()
        rows.put(stale & moved)
        return stale & moved, rows.problem(name, moved & audited, 0.0)

    def ended(self, part: Part, tensors: Mapping[str, Overlay]) -> None:
        """A part is over, and ``tensors`` have its rows. Collective: every rank must call."""

    def passed(self, part: Part) -> None:
        """Later parts read what it has made. Collective: every rank must call."""

    def finish(self, results: Mapping[str, torch.Tensor]) -> None:
        """All is computed. Collective: every rank must call."""


class Stale:
    """The results, of which only stale rows are computed. Methods are collective: all ranks call.

    Raises:
        Doubt: all rows must be computed; so may :meth:`need` and :meth:`put`.
    """

    def __init__(
        self,
        engine: Engine,
        base: Refreshing,
        excerpts: Excerpts,
        audit: Audit,
        keeper: LayerKeeper | None,
        placement: Placement,
    ) -> None:
        self._placement = placement
        self._engine, self._base, self.excerpts = engine, base, excerpts
        self._audit, self._keeper = audit, keeper
        self._facts = engine.ctx.graph_facts.refresh
        self._facts.begin()
        row_type = engine.ctx.job.spec.inference.rows
        self._seals = find_parts(excerpts.plan, engine.whole, row_type, base)
        self.parts = list(self._seals)
        self._moved: dict[str, Rows] = stale_inputs(engine.plan, base.changes)
        self._same_places: dict[str, bool] = {}
        self._made: dict[str, Overlay] = {}
        """What the part that runs makes."""
        self._stale: dict[str, Rows] = {}
        self._audited: dict[str, Rows] = {}

    def need(self, part: Part) -> Need:
        """The stale rows of a part, and those that are audited."""
        plan, types, changes = part.plan, part.plan.program.types, self._base.changes
        done, layers = part.first / len(plan.ops), plan.program.layers
        self._engine.ctx.progress("infer", done, part.end.layer, layers)
        with self._engine.clock.layer(part.layer), on_one_thread():
            self._made = made = self._kept(part)
            self.excerpts.open(part)
            every = stale_in(plan, part.ops, self._moved, changes, self.excerpts.targets)
            stale = {name: every[name] for name in made}
            spared = self._audit.spare(part, stale, made)
            self._facts.unmoved += sum(int(rows.count_nonzero()) for rows in spared.values())
            stale |= {name: stale[name] & ~rows for name, rows in spared.items()}
            drawn = {of: self._drawn(part, of) for of in {types[name] for name in made}}
            audited = {name: drawn[types[name]] & ~stale[name] for name in made}
            for name, rows in spared.items():
                # Were they drawn among all, few of these would be.
                audited[name] |= some_of(rows, AUDITED_ROWS, self._base.seed, part.end.layer)
            self._audited = audited
            self._stale = stale
            self._count(part, every)
            wanted = {name: stale[name] | self._audited[name] for name in made}
            need = self.excerpts.need(part, wanted)
        if why := self.excerpts.why_not(part, need):
            raise Doubt(why)
        return need

    def put(self, part: Part, made: Made) -> None:
        """Put the rows that have moved among those that were kept."""
        with self._engine.clock.layer(part.layer):
            self._put_all(part, made)
            self._audit.passed(part)

    def _put_all(self, part: Part, made: Made) -> None:
        exchange, store = self._engine.whole.exchange, self.excerpts.store
        # Before what was made of them is judged.
        agree(exchange, self._why())
        with on_one_thread():
            why = [self._put(part, made, name, rows) for name, rows in self._made.items()]
            self._audit.ended(part, self._made)
        agree(exchange, next(filter(None, [self._why(), *why]), ""))
        store.lay(self._made, part.freed)
        if self._keeper is not None:
            self._keeper.goes_on_from(self._earlier(part), store.laid, self._audit.beside)

    def _why(self) -> str:
        """What is wrong of the rows that were read of those that were kept."""
        tensors = (*self.excerpts.store.laid.values(), *self._made.values())
        return next(filter(None, (rows.why for rows in tensors)), "")

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> our rows of it."""
        layers, placement = self._engine.plan.program.layers, self._placement
        self._engine.ctx.progress("infer", 1.0, layers, layers)
        laid, names = self.excerpts.store.laid, self._engine.plan.program.results.values()
        with self._engine.clock.layer(layers):
            shards = {
                name: placement.fill(name, rows.layout, rows.fill)
                for name, rows in laid.items()
                if name in names
            }
        agree(self._engine.whole.exchange, self._why())
        laid.clear()
        self._made.clear()
        # Features stay, for a run of all rows.
        placement.made(self.parts[-1], shards)
        results = placement.results()
        self._audit.finish(results)
        return results

    def _kept(self, part: Part) -> dict[str, Overlay]:
        """The rows that were kept of what a part makes."""
        rows, why, whole = dict[str, Overlay](), "", self._engine.whole
        kept, before = Kept(self._base.store, self._seals[part]), self._base.before
        try:
            tensors = [kept.tensor(name) for name in part.made]
            rows = {of.name: Overlay(whole, kept, before, of) for of in tensors}
            self._audit.begin(part, kept, tensors)
        except Damaged as error:
            why = str(error)
        agree(whole.exchange, why)
        return rows

    def _drawn(self, part: Part, node_type: str) -> Rows:
        """[N] bool, some rows that are computed although they are not stale, or may be."""
        count = self._engine.whole.ranges[node_type].nodes
        rows = torch.zeros(count, dtype=torch.bool)
        drawn = draw(min(AUDITED_ROWS, count), count, self._base.seed, part.end.layer)
        rows[torch.from_numpy(drawn)] = True
        return rows

    def _count(self, part: Part, every: Mapping[str, Rows]) -> None:
        """Count what a part computes of the stale rows.

        Args:
            every: tensor -> [N] bool, the rows that may differ.
        """
        types, of_types = part.plan.program.types, dict[str, Rows]()
        for name, rows in self._stale.items():
            join(of_types, types[name], rows)
        computed = {
            step.out: every[step.out] & of_types.get(types[step.out], every[step.out])
            for op in part.ops
            for step in op.steps
        }
        for step in (step for op in part.ops for step in op.steps if isinstance(step, EdgeStep)):
            graphs = {(step.layer, step.relation): computed[step.out]}
            self._facts.edges += sum(self.excerpts.count_edges(graphs).values())
        made = {op.out for op in part.ops}
        results = dict.fromkeys(part.plan.program.results.values())
        some = [computed[name] for name in results if name in made]
        self._facts.rows += sum(int(rows.count_nonzero()) for rows in some)

    def _put(self, part: Part, made: Made, name: str, ours: Overlay) -> str:
        """Take rows of a tensor that were computed; says what is wrong of them."""
        whole, types = self._engine.whole, part.plan.program.types
        computed, audited = self._stale[name], self._audited[name]
        rows = _beside(made, self._engine, name, ours, computed | audited, self._new(types[name]))
        ids = rows.ids
        put, why = self._audit.put(part, name, rows, computed[ids], computed, audited[ids])
        every = torch.zeros(len(computed), dtype=torch.bool)
        every[ids[put]] = True
        self._moved[name] = any_rank(whole.exchange, every, PRIMITIVE)
        if part.is_read(name):
            moved = self._moved[name].count_nonzero()
            self._facts.unmoved += int(computed.count_nonzero() - moved)
        return why

    def _new(self, node_type: str) -> Rows:
        return self._base.before[node_type] < 0

    def _earlier(self, part: Part) -> dict[str, EarlierRows]:
        """Tensor of a part that was run -> the rows of it that were kept, and those that moved;
        none of node types whose nodes are not where they were."""
        types = part.plan.program.types
        return {
            tensor.name: EarlierRows(self._base.store.key, tensor, self._moved[tensor.name].numpy())
            for tensor in self._seals[part].tensors
            if tensor.name in self._made and self._stays(types[tensor.name])
        }

    def _stays(self, node_type: str) -> bool:
        """Whether each node has the dense id that it had; those that are gone had the last ones."""
        if node_type not in self._same_places:
            before = self._base.before[node_type]
            self._same_places[node_type] = bool((before == torch.arange(len(before))).all())
        return self._same_places[node_type]


def some_of(rows: Rows, count: int, seed: int, phase: int) -> Rows:
    """Up to so many of the rows that are set, each equally likely; fewer of the same are among
    more."""
    places = rows.nonzero().squeeze(1)
    drawn = draw(min(count, len(places)), len(places), seed, phase)
    some = torch.zeros_like(rows)
    some[places[torch.from_numpy(drawn)]] = True
    return some


def _beside(
    made: Made, engine: Engine, name: str, ours: Overlay, wanted: Rows, new: Rows
) -> RowsBeside:
    """Our rows of a tensor, without others that were there for those that read them.

    Args:
        ours: all rows, those that were kept.
        wanted: [N] bool.
        new: [N] bool, rows of nodes that were not there before.
    """
    whole, execution = engine.whole, made.execution
    values = execution.tensors.converted(name, ours.layout, execution.channel(0)).data
    every = made.excerpt.of_ours(whole, whole.program.types[name], ours.layout)
    some = wanted[ours.first : ours.first + len(ours)][every].nonzero().squeeze(1)
    axis = whole.exchange.channel("feature", PRIMITIVE) if ours.layout == "tile" else None
    numbers, values = every[some], values if len(some) == len(values) else values[some]
    new = new[ours.first : ours.first + len(ours)][numbers]
    return RowsBeside(ours, numbers, values, new, axis)
