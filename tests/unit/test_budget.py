"""The memory that a worker may take: how it is written, and plans that need more of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embertide.planning.budget import within_budget
from embertide.planning.sizing import IMPORTS_BYTES
from embertide.spec.grid import GridShape
from embertide.spec.workers import Workers, parse_memory
from embertide.telemetry.estimate import Estimate
from tests.support.cli import ESTIMATE

MIB, GIB = 1 << 20, 1 << 30
CONSTANT = 100 * MIB
"""Of a worker's work, however many workers share the rest."""
SHARED = 2 * GIB


def on_grid(grid: GridShape) -> Estimate:
    """Work that graph partitions share, all but a constant part."""
    peak = CONSTANT + SHARED // grid.graph
    stages = {"csr": peak // 2, "infer": peak}
    return replace(
        ESTIMATE, grid=grid, memory_per_worker_bytes=stages, peak_memory_per_worker_bytes=peak
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 * GIB), ("1.5Gi", 3 * GIB // 2), ("512MiB", 512 * MIB), ("1Ti", 1024 * GIB)],
)
def test_sizes_as_people_and_kubernetes_write_them(text: str, size: int) -> None:
    assert parse_memory(text) == size
    assert Workers(memory=text).memory_bytes == size


@pytest.mark.parametrize("text", ["", "2", "2GB", "2 GiB", "-1GiB", "GiB", "1e3Mi", "2GiB "])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number with its unit, such as 512MiB"):
        parse_memory(text)
    with pytest.raises(ValueError, match="memory"):
        Workers(memory=text)


def test_without_a_budget_the_estimate_is_as_it_was() -> None:
    found = on_grid(GridShape())
    assert within_budget(found, None, 1000, on_grid) is found


def test_a_plan_that_fits_has_no_problem() -> None:
    needed = CONSTANT + SHARED + IMPORTS_BYTES
    budget = within_budget(on_grid(GridShape()), needed, 1000, on_grid).budget
    assert budget is not None
    assert (budget.limit_bytes, budget.needed_bytes, budget.problem) == (needed, needed, "")
    assert budget.sentence == "fits: 2.4 GiB of 2.4 GiB a worker"


def test_a_plan_that_does_not_fit_names_the_stage_and_the_fewest_workers() -> None:
    budget = within_budget(on_grid(GridShape.of(1, 2)), GIB, 1000, on_grid).budget
    assert budget is not None
    assert budget.problem == budget.sentence
    for part in (
        "grid 1x2 needs 2.4 GiB of 1.0 GiB for a worker (--memory, spec.workers.memory)",
        "2.1 GiB in the stage infer, and 320.0 MiB of imports",
        "use at least 8 workers (grid 4x2), or give each 2.4 GiB",
    ):
        assert part in budget.problem


@pytest.mark.parametrize(("limit", "nodes"), [(CONSTANT, 1000), (GIB, 3)])
def test_where_no_grid_fits_it_says_what_this_one_needs(limit: int, nodes: int) -> None:
    # Of three nodes four workers would have none.
    budget = within_budget(on_grid(GridShape()), limit, nodes, on_grid).budget
    assert budget is not None
    assert "no grid of up to 256 workers fits; give each 2.4 GiB" in budget.problem
