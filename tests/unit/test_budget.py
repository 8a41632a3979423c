"""The memory that a worker may take: how it is written, and plans that need more of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from embertide.engine.planning.budget import within_budget, within_container
from embertide.engine.planning.sizing import (
    container_bytes,
    container_problem,
    machine_bytes,
    volume_bytes,
    work_bytes_in,
)
from embertide.facts.telemetry.estimate import Estimate, PlannedSpill
from embertide.spec.grid import GridShape
from embertide.spec.workers import Workers, parse_memory
from tests.support.cli import ESTIMATE
from tests.support.expected import Expected, inputs

MIB, GIB = 1 << 20, 1 << 30
WIDTH = 64
CONSTANT = 100 * MIB
"""Of a worker's work, however many workers share the rest."""
SHARED = 2 * GIB


def on_grid(grid: GridShape, *, panel: int = 0, spills_graph: bool = False) -> Estimate:
    """Work that graph partitions share, all but a constant part; half of it tensors of nodes, the
    rest edges and the graph, of which an eighth is in memory where they are on disk."""
    tensors = graph = SHARED // grid.graph // 2
    in_memory = tensors * panel // WIDTH if panel else tensors
    peak = CONSTANT + (graph // 8 if spills_graph else graph) + in_memory
    stages = {"csr": peak // 2, "infer": peak}
    return replace(
        ESTIMATE,
        grid=grid,
        width=WIDTH,
        output_width=WIDTH,
        seconds=(5.0, 15.0),
        memory_per_worker_bytes=stages,
        peak_memory_per_worker_bytes=peak,
        spill=PlannedSpill(panel, GIB, 3 * GIB, 2 * GIB, 4.0, spills_graph, LARGEST)
        if panel
        else None,
    )


LARGEST = "attend (h, layer 0)"
"""The operation that has most in memory."""
NEVER = "rows: bfloat16 can't be on disk"
"""Why no tensors are on disk."""


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


CASES = inputs("budgets.txt")


@pytest.mark.parametrize("name", CASES)
def test_a_plan_within_a_budget(name: str, expected: Expected) -> None:
    """What is on disk, and what is said of it."""
    given = {"nodes": 1000, "widest": WIDTH, "grid": "1x1", "panel": 0}
    given |= {"tensors": True} | yaml.safe_load(CASES[name])
    planned = on_grid(GridShape.parse(given["grid"]), panel=given["panel"])
    limit = None if given["mib"] is None else int(given["mib"] * MIB)
    problem = "" if given["tensors"] else NEVER
    found = within_budget(planned, limit, given["nodes"], given["widest"], on_grid, problem)
    spill, told = found.spill, "as planned" if found is planned else found.budget.sentence
    on_disk = spill and f"panels of {spill.panel}{', and the graph' if spill.graph else ''}"
    refused = found.budget is not None and found.budget.problem
    assert refused in (False, "", told)
    text = f"{'refused' if refused else 'taken'}; on disk: {on_disk}\n{told}"
    expected.check("budgets.txt", name, f"{CASES[name]}--\n{text}", CASES)


@pytest.mark.parametrize("beside", [0, 123_456_789, SHARED, 2 * SHARED])
@pytest.mark.parametrize("problem", ["", NEVER])
def test_a_refusal_asks_for_the_least_that_is_accepted(beside: int, problem: str) -> None:
    def estimated(grid: GridShape, *, panel: int = 0, spills_graph: bool = False) -> Estimate:
        """Parts on disk come with buffers beside them."""
        found = on_grid(grid, panel=panel, spills_graph=spills_graph)
        peak = found.peak_memory_per_worker_bytes + (beside if panel else 0)
        return replace(
            found,
            memory_per_worker_bytes={"csr": peak // 2, "infer": peak},
            peak_memory_per_worker_bytes=peak,
        )

    def refusal(limit: int, grid: GridShape) -> str:
        args = 1000, WIDTH, estimated, problem
        budget = within_budget(estimated(grid), limit, *args).budget
        assert budget is not None
        return budget.problem

    first = refusal(400 * MIB, GridShape())
    asked = parse_memory(first.rpartition(" ")[2])
    assert refusal(asked, GridShape()) == ""
    assert refusal(asked - MIB, GridShape()).endswith(first.rpartition(" ")[2])
    if "use at least" in first:
        larger = GridShape.parse(first.partition("(grid ")[2].partition(")")[0])
        assert refusal(400 * MIB, larger) == ""
        assert refusal(400 * MIB, GridShape.of(larger.graph // 2, 1))


# A container's limit, where the job sets no memory.


def in_container(container: int, problem: str = NEVER) -> Estimate:
    """The plan of one worker in a container of so many bytes."""
    return within_container(on_grid(GridShape()), container, 1000, WIDTH, on_grid, problem)


def test_a_plan_that_its_container_holds_stays_in_memory() -> None:
    whole = on_grid(GridShape())
    limit = machine_bytes(whole.peak_memory_per_worker_bytes, 1)
    assert container_problem(whole.peak_memory_per_worker_bytes, limit) is None
    assert in_container(limit, "") == whole


def test_a_plan_beyond_its_container_has_tensors_on_disk_with_a_margin() -> None:
    whole = on_grid(GridShape())
    limit = machine_bytes(whole.peak_memory_per_worker_bytes, 1) - 1
    found = in_container(limit, "")
    assert found.spill is not None
    assert container_bytes(found.peak_memory_per_worker_bytes) <= limit + (64 << 20)
    assert found.budget is not None
    assert found.budget.spills


@pytest.mark.parametrize("container", [0, 20 * MIB, 2 * GIB])
def test_a_plan_that_fits_in_no_way_is_not_refused(container: int) -> None:
    """Plans are upper bounds, and such jobs have run."""
    found = in_container(container)
    assert (found.spill, found.budget) == (None, None)
    problem = container_problem(found.peak_memory_per_worker_bytes, container)
    assert problem is not None
    assert "use more workers or raise the limit" in problem


@pytest.mark.parametrize("peak", [0, 100 * MIB, 7 * GIB])
def test_the_work_that_a_container_holds(peak: int) -> None:
    assert peak <= work_bytes_in(container_bytes(peak)) <= peak + (64 << 20)
    assert work_bytes_in(MIB) == 0


def test_a_scratch_volume_is_larger_than_its_tensors() -> None:
    for disk in (1, GIB, 100 * GIB):
        assert volume_bytes(disk) >= 1.25 * disk + 256 * MIB - 1
        assert volume_bytes(disk) % (64 << 20) == 0
