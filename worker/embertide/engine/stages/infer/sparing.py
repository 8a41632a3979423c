"""Rows that some change reaches, and that are not computed since they cannot have moved enough."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from embertide.engine.stages.infer.beside import Beside
from embertide.engine.stages.infer.distances import bounds, have_bounds, of_all
from embertide.engine.stages.infer.excerpt_run import PRIMITIVE, ExcerptRun
from embertide.engine.stages.infer.moved import norms, within
from embertide.engine.stages.infer.restoring import place_of
from embertide.engine.stages.infer.taking_over import Refreshing
from embertide.layouts import Shard
from embertide.program.plans.dirty import changed_inputs, dirty_in
from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import Rows
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Run

_UP = 1.0 + 1e-6
"""So that a distance is not rounded down where it is kept as float32."""


class Sparing:
    """How far rows have moved, and how far others may be from what their layer makes.

    Attributes:
        far: tensor of the part that runs -> [N] float64, the latter.
    """

    def __init__(
        self, whole: Execution, excerpts: ExcerptRun, plan: Plan, refreshing: Refreshing
    ) -> None:
        self._whole, self._excerpts = whole, excerpts
        self._plan, self._refreshing = plan, refreshing
        self.far: dict[str, torch.Tensor] = {}
        inf = torch.tensor(float("inf"), dtype=torch.float64)
        self._moved = {
            name: torch.where(rows, inf, 0.0)
            for name, rows in changed_inputs(plan, refreshing.changes).items()
        }

    def rows(
        self,
        ops: Sequence[Run],
        dirty: Mapping[str, Rows],
        shards: Mapping[str, Shard],
        kept: Mapping[str, Beside],
    ) -> dict[str, Rows]:
        """Tensor -> [N] bool, the rows that are not computed. Collective: every rank must call.

        Args:
            dirty: tensor -> [N] bool, the rows that may differ.
            shards: what was kept of them.
            kept: and how far they may be from what their layer makes, so far.
        """
        self.far = {}
        # Rows that are rounded may move farther than what they are made of.
        if self._whole.row_type != torch.float32 or not have_bounds(ops):
            return {}
        plan, changes, spared = self._plan, self._refreshing.changes, dict[str, Rows]()
        none = {name: torch.zeros_like(moved != 0) for name, moved in self._moved.items()}
        known = none | changed_inputs(plan, changes)
        certain = dirty_in(plan, ops, known, changes, self._excerpts.targets)
        added = bounds(self._excerpts, self._whole, ops, self._moved)
        for name, rows in dirty.items():
            first = self._first(name, shards[name])
            before = kept[name].rows + first, kept[name].values[:, 0].double()
            self.far[name] = added[name] + of_all(self._whole.exchange, len(rows), *before)
            maybe = rows & ~certain[name]
            norm = self._norms(name, shards[name], maybe)
            spared[name] = maybe & within(self.far[name], self._refreshing.tolerance, norm)
        return spared

    def forget(self, names: Collection[str]) -> None:
        """No later operation reads these tensors."""
        for name in names:
            self._moved.pop(name, None)

    def _first(self, name: str, shard: Shard) -> int:
        (first, _), _ = place_of(self._whole, name, shard.layout)
        return first

    def _norms(self, name: str, shard: Shard, some: Rows) -> torch.Tensor:
        """[N] float64 of some rows that were kept. Collective: every rank must call."""
        whole, first = self._whole, self._first(name, shard)
        ours = some[first : first + len(shard.data)].nonzero().squeeze(1)
        channel = whole.exchange.channel("feature", PRIMITIVE) if shard.layout == "tile" else None
        return of_all(whole.exchange, len(some), ours + first, norms(shard.data[ours], channel))

    def computed(
        self, name: str, dirty: Rows, ids: torch.Tensor, distance: torch.Tensor, put: Rows
    ) -> None:
        """Rows of a tensor were computed. Collective: every rank must call.

        Args:
            dirty: [N] bool, all of them.
            ids: [k] of ours.
            distance: [k] float64 from what was kept; infinite of new nodes; 0 of rows that stay as
                they were computed, since no later layer reads them.
            put: [k] bool, those that have moved.
        """
        exchange, count = self._whole.exchange, len(dirty)
        self._moved[name] = of_all(exchange, count, ids[put], distance[put])
        if name in self.far:
            stay = of_all(exchange, count, ids[~put], distance[~put])
            self.far[name] = torch.where(dirty, stay, self.far[name])

    def beside(self, name: str, shard: Shard) -> Beside:
        """What is kept of :attr:`far` beside our shard, as numbers of its type."""
        first = self._first(name, shard)
        ours = self.far[name][first : first + len(shard.data)]
        rows = ours.nonzero().squeeze(1)
        values = (ours[rows] * _UP).float().unsqueeze(1)
        return Beside(rows, values.view(shard.data.dtype))
