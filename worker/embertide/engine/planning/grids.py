"""Which grids a plan shows beside the chosen one, and where workers read each other's memory."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.errors import GridError
from embertide.grid import check_fits
from embertide.kernels.memory import may_share
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob

_SHOWN = [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (8, 1), (4, 2)]


def grids_to_compare(chosen: GridShape, nodes: int, widths: Mapping[str, int]) -> list[GridShape]:
    """Small grids that fit the graph and the model, and the chosen one, fewest workers first."""
    small = [GridShape.of(graph, feature) for graph, feature in _SHOWN]
    fitting = [grid for grid in small if grid != chosen and _fits(grid, nodes, widths)]
    return sorted([*fitting, chosen], key=lambda grid: (grid.workers, grid.feature))


def may_read_in_place(job: EmbeddingJob) -> bool:
    """Whether the workers of a job read each other's tensors in place, if all are on this host."""
    return may_share() and job.spec.workers.device == "cpu"


def _fits(grid: GridShape, nodes: int, widths: Mapping[str, int]) -> bool:
    try:
        check_fits(grid, nodes, widths)
    except GridError:
        return False
    return True
