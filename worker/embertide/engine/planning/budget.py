"""The memory that a worker may take, compared with what its plan needs.

Where all tensors in memory need more, tensors of nodes go to disk, and as many of their columns
are in memory at a time as fit. Where that needs more as well, edges and the graph go to disk, too,
and last panels are narrower than a kernel is best at; where even that needs more, the fewest
workers that fit are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from embertide.engine.planning.sizing import (
    IMPORTS_BYTES,
    container_problem,
    work_bytes_in,
    worker_bytes,
)
from embertide.facts.telemetry.estimate import Estimate, MemoryBudget, PlannedSpill
from embertide.facts.telemetry.format import asked_bytes, human_bytes
from embertide.spec.grid import GridShape

MOST_WORKERS = 256
"""Largest grid that is tried: with more workers, constant parts are most of each one's memory."""
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Into how many panels the widest tensor is cut."""
_COLUMNS = 16
"""A panel has a multiple of these: what a kernel takes at a time."""
NARROW = (8, 4)
"""Columns of panels where nothing else fits: of each cache line that is read, less is used."""

TAKES_MORE = "with tensors on disk it needs more"


class EstimateOn(Protocol):
    """The estimate of a job on a grid, with tensors in memory or on disk, the graph, too."""

    def __call__(self, grid: GridShape, *, panel: int = 0, spills_graph: bool = False) -> Estimate:
        """``panel`` columns of a tensor on disk are in memory at a time; 0: all are in memory."""


def within_budget(
    planned: Estimate,
    limit: int | None,
    nodes: int,
    widest: int,
    estimate: EstimateOn,
    spill_problem: str,
) -> Estimate:
    """An estimate with its budget, where there is one; of a run with tensors on disk, if it must.

    Args:
        limit: bytes that a worker may take, its imports included.
        nodes: of the largest node type, of which every worker needs one.
        widest: columns of the widest tensor.
        estimate: of the same job, also on other grids.
        spill_problem: why tensors can't be on disk; "" where they can.
    """
    if limit is None:
        return planned
    needed = _needs(planned)
    if needed <= limit:
        return replace(planned, budget=MemoryBudget(limit, needed))
    ladder = Ladder(_needs, limit, nodes, widest, estimate, not spill_problem)
    return _Tight(planned, ladder, spill_problem).estimated()


def within_container(
    planned: Estimate,
    container: int,
    nodes: int,
    widest: int,
    estimate: EstimateOn,
    spill_problem: str,
) -> Estimate:
    """An estimate for workers whose containers have so many bytes, where the job sets no memory.

    Tensors are on disk where the plan needs more and that makes it fit. Where it does not, the
    estimate is as it was: a plan is an upper bound, so such a run is not refused.

    Args:
        nodes, widest, estimate, spill_problem: as of :func:`within_budget`.
    """
    if container_problem(planned.peak_memory_per_worker_bytes, container) is None:
        return planned
    limit = worker_bytes(work_bytes_in(container))
    spilled = within_budget(planned, limit, nodes, widest, estimate, spill_problem)
    return planned if spilled.spill is None else spilled


def _needs(planned: Estimate) -> int:
    return worker_bytes(planned.peak_memory_per_worker_bytes)


@dataclass(frozen=True)
class Ladder:
    """What is given up where memory does not do: columns in memory, then the graph, then width.

    Attributes:
        needs: of an estimate, bytes that are compared with ``limit``.
        nodes, widest, estimate: as of :func:`within_budget`.
        spills: tensors can be elsewhere.
        spills_graph: the graph can be there, too.
    """

    needs: Callable[[Estimate], int]
    limit: int
    nodes: int
    widest: int
    estimate: EstimateOn
    spills: bool
    spills_graph: bool = True

    def fits(self, estimate: Estimate) -> bool:
        """Whether it needs no more than there is."""
        return self.needs(estimate) <= self.limit

    def spilled(self, grid: GridShape) -> Iterator[Estimate]:
        """Estimates from the first rung to the first that fits; none where nothing can spill."""
        if not self.spills:
            return
        for panel, spills_graph in chain(*self._rungs()):
            tried = self.estimate(grid, panel=panel, spills_graph=spills_graph)
            yield tried
            if self.fits(tried):
                break

    def _rungs(self) -> list[list[tuple[int, bool]]]:
        """Panels, and whether the graph is elsewhere, too: of each kind the widest panel first."""
        graph, panels = self.spills_graph, list(panels_of(self.widest))
        kinds = [(panels, False), (panels if graph else [], True)]
        kinds.append(([panel for panel in NARROW if panel < self.widest], graph))
        return [[(panel, spills) for panel in of_kind] for of_kind, spills in kinds if of_kind]

    def larger(self, grid: GridShape) -> GridShape | None:
        """The grid of 2, 4, ... times as many graph partitions that fits; None if none does."""
        graph = 2 * grid.graph
        while graph * grid.feature <= min(MOST_WORKERS, self.nodes):
            larger = GridShape.of(graph, grid.feature)
            # Of each kind, the narrowest panel needs least.
            least = [rungs[-1] for rungs in self._rungs()] if self.spills else []
            if self._fits_any(larger, [(0, False), *least]):
                return larger
            graph *= 2
        return None

    def _fits_any(self, grid: GridShape, rungs: Sequence[tuple[int, bool]]) -> bool:
        every = (self.estimate(grid, panel=panel, spills_graph=graph) for panel, graph in rungs)
        return any(map(self.fits, every))

    def advice(self, grid: GridShape) -> str:
        """What to do where nothing fits; the amount for each worker follows."""
        larger = self.larger(grid)
        if larger is None:
            return f"no grid of up to {MOST_WORKERS} workers fits; give each"
        return f"use at least {larger.workers} workers (grid {larger}), or give each"


@dataclass(frozen=True)
class _Tight:
    """A plan that needs more than its budget; attributes as of :func:`within_budget`."""

    planned: Estimate
    ladder: Ladder
    spill_problem: str

    @property
    def limit(self) -> int:
        return self.ladder.limit

    def estimated(self) -> Estimate:
        """With tensors on disk where that fits; else with the problem."""
        tried = list(self.ladder.spilled(self.planned.grid))
        if tried and self.ladder.fits(tried[-1]):
            return self._with_budget(tried[-1])
        # Parts on disk come with buffers: all in memory may be less.
        least = min([self.planned, *tried], key=_needs)
        budget = MemoryBudget(self.limit, _needs(least), self._problem(least))
        return replace(self.planned, budget=budget)

    def _with_budget(self, spilled: Estimate) -> Estimate:
        spill = spilled.spill
        assert spill is not None
        budget = MemoryBudget(self.limit, _needs(spilled), spills=_sentence(spill, spilled))
        return replace(spilled, budget=budget)

    def _problem(self, least: Estimate) -> str:
        stages = least.memory_per_worker_bytes
        fullest = max(stages, key=lambda stage: stages[stage])
        needed = _needs(least)
        disk = f"; {self.spill_problem or TAKES_MORE}"
        if least.spill is not None:
            disk = (
                f" with the graph and tensors on disk, of which {least.spill.largest} has most in"
                " memory at a time"
            )
        return (
            f"grid {self.planned.grid} needs {human_bytes(needed)} of {human_bytes(self.limit)} for"
            f" a worker (--memory, spec.workers.memory): {human_bytes(stages[fullest])} in the"
            f" stage {fullest}, and {human_bytes(IMPORTS_BYTES)} of imports{disk};"
            f" {self.ladder.advice(self.planned.grid)} {asked_bytes(needed)}"
        )


def panels_of(width: int) -> Iterator[int]:
    """Columns of a panel, from all of the widest tensor to the fewest."""
    cut = (-(-width // parts) for parts in _PARTS)
    yield from dict.fromkeys(-(-columns // _COLUMNS) * _COLUMNS for columns in cut)


def _sentence(spill: PlannedSpill, planned: Estimate) -> str:
    more = ""
    if planned.seconds is not None:
        likely = max(1.0, sum(planned.seconds) / 2)
        more = f", about +{100 * spill.seconds / likely:.0f} % of work"
    return (
        f"spills {human_bytes(spill.disk_bytes)} of each worker to disk,"
        f"{' the graph too,' if spill.graph else ''} {spill.panel} columns at a"
        f" time in memory ({human_bytes(spill.written_bytes)} written, "
        f"{human_bytes(spill.read_bytes)} read{more})"
    )
