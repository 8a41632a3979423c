"""How many columns are at a time where layers are computed: fewer once its memory ran out.

The plan chooses a width that fits by what it counts. A GPU also has what is not counted, such as
the buffers of libraries; so a panel that does not fit is cut, and so are all that come later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from embertide.errors import WorkerFailed
from embertide.facts.telemetry.format import human_bytes
from embertide.program.plans.panels import Panel, narrower
from embertide.program.plans.plan import Plan

NARROWER = (
    "the GPU had no memory for {columns} columns of a tensor at a time: layers go on with {fewer}"
    " (memory that torch has there: {held}); a smaller --gpu-memory (spec.workers.deviceMemory)"
    " plans for fewer from the start"
)
FULL = (
    "the GPU has no memory for {columns} columns of a tensor at a time, {why}; give workers a"
    " smaller --gpu-memory (spec.workers.deviceMemory), by which the plan takes fewer columns, or"
    " use more workers"
)


@dataclass
class PanelWidths:
    """The widths of panels of one run.

    Attributes:
        most: columns that a panel may have now; 0: as many as the plan says.
        warn: called with a sentence for the run's user.
    """

    plan: Plan
    warn: Callable[[str], None]
    most: int = 0

    def run(
        self,
        panels: Sequence[Panel],
        width: int,
        run: Callable[[Sequence[Panel], list[Panel]], None],
    ) -> None:
        """Run for all panels of a tensor; for those that had no memory as narrower ones.

        On a grid of several workers none is cut: they exchange rows for the same panels.

        Args:
            run: called with panels; adds each to a list once its result is stored.

        Raises:
            WorkerFailed: no panel can be narrower.
        """
        rest = self._cut(panels, width)
        while rest:
            stored: list[Panel] = []
            try:
                run(rest, stored)
            except torch.OutOfMemoryError as error:
                self._narrow(rest[len(stored)], width, error)
            rest = self._cut(rest[len(stored) :], width)

    def _cut(self, panels: Sequence[Panel], width: int) -> list[Panel]:
        if not self.most:
            return list(panels)
        return [part for panel in panels for part in narrower(self.plan, width, panel, self.most)]

    def _narrow(self, panel: Panel, width: int, error: torch.OutOfMemoryError) -> None:
        """From now on no panel has more than half as many columns as one."""
        columns = panel.own.stop - panel.own.start
        if self.plan.grid.workers > 1:
            why = "which workers that exchange rows can't change"
            raise WorkerFailed(FULL.format(columns=columns, why=why)) from error
        self.most = max(1, columns // 2)
        fewer = next(iter(narrower(self.plan, width, panel, self.most))).own
        if fewer == panel.own:
            why = "and no fewer are computed together"
            raise WorkerFailed(FULL.format(columns=columns, why=why)) from error
        held = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
        self.warn(
            NARROWER.format(columns=columns, fewer=fewer.stop - fewer.start, held=human_bytes(held))
        )
