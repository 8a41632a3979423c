"""Tensors on disk, of several node types or of sampled layers, have the bits of those in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.steps import Program
from tests.support.catalogue import catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.hetero_programs import described
from tests.support.plans import order_steps
from tests.support.ranks import on_grid
from tests.support.sharing_programs import additive, messages, pairs, read
from tests.support.spilled_layers import spill_layers
from tests.support.spilled_types import TypedAnswer, spill_typed
from tests.support.typed_programs import (
    attending,
    carrying,
    carrying_on,
    from_files,
    looped,
    normed,
    relational,
    scaled,
    sharing,
)
from tests.support.typed_world import expected_of
from tests.support.world import GRAPHS

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1))
ON_DISK = {(1, 1): 5, (2, 1): 5, (1, 2): 4, (2, 2): 0, (3, 1): 5}
"""By grid, programs at least that have the graph on disk: those whose steps go over it in parts,
where workers read each other's rows in place, and compute whole rows."""
PROGRAMS = [
    relational(), attending(), from_files(), sharing(), normed(), carrying(), carrying_on(),
    additive(), pairs(), messages(), read(), scaled(), looped(),
]  # fmt: skip


@pytest.mark.parametrize("grid", GRIDS)
def test_every_type_has_the_bits_of_a_run_in_memory(
    grid: tuple[int, int], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    turns = 1 if pytestconfig.option.tier == 3 else len(GRIDS)
    programs = [*PROGRAMS, *described(GRIDS.index(grid) % turns, turns)]
    by_rank = spill(grid, programs, tmp_path)
    for number, program in enumerate(programs):
        answers = [rank[number] for rank in by_rank]
        for of_type, expected in expected_of(program).items():
            whole, spilled = (joined(answers, way, of_type) for way in ("whole", "spilled"))
            assert np.array_equal(whole, spilled), (number, of_type)
            assert relative_error(spilled, expected) <= TOLERANCE, (number, of_type)
        assert not any(answer.checked.faults for answer in answers), number
        check_graph_on_disk(answers, str(number))
    parts = [answer.stored.parts for answer in by_rank[0] if answer.stored is not None]
    assert len(parts) >= ON_DISK[grid]
    assert max(parts, default=0) > 3 or not ON_DISK[grid]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("grid", "least"), [((2, 1), 4), ((2, 2), 2)])
def test_edges_that_the_job_changes_have_the_bits_of_a_run_in_memory(
    grid: tuple[int, int], least: int, tmp_path: Path
) -> None:
    """Also on several feature partitions of one host, where so many programs have whole rows."""
    programs = [relational(), looped(), additive(), read()]
    edges = {
        "buys": {"duplicates": "remove"},
        "follows": {"selfLoops": "addToAll"},
        "has": {"duplicates": "remove"},
    }
    by_rank = spill(grid, programs, tmp_path, edges, one_host=True)
    assert sum(answer.stored is not None for answer in by_rank[0]) >= least
    for number in range(len(programs)):
        check_graph_on_disk([rank[number] for rank in by_rank], str(number), least=0.8)


def spill(
    grid: tuple[int, int],
    programs: list[Program],
    folder: Path,
    edges: dict[str, Any] | None = None,
    *,
    one_host: bool = False,
) -> list[list[TypedAnswer]]:
    """What every rank answers."""
    ordered = [order_steps(program, grid[0] * grid[1]) for program in programs]
    return on_grid(*grid, spill_typed, ordered, str(folder), 2, edges, one_host=one_host)


def joined(answers: list[TypedAnswer], way: str, of_type: str) -> np.ndarray:
    """[N, D'] the rows of all ranks."""
    return np.concatenate([getattr(answer, way)[of_type] for answer in answers])


def check_graph_on_disk(answers: list[TypedAnswer], name: str, least: float = 0.97) -> None:
    """With the graph on disk rows have the same bits, and the bytes that are planned are moved.

    Args:
        least: share of those, since self-loops take the place of some that are there, and of
            equal edges one may be kept.
    """
    stored = [answer.stored for answer in answers if answer.stored is not None]
    assert len(stored) in (0, len(answers))
    for of_type in answers[0].whole if stored else ():
        rows = np.concatenate([own.rows[of_type] for own in stored])
        assert np.array_equal(joined(answers, "whole", of_type), rows), (name, of_type)
    assert not any(own.checked.faults for own in stored), name
    for way in (0, 1):
        moved = sum(own.moved[way] for own in stored)
        planned = round(sum(own.planned[way] for own in stored))
        assert least * planned <= moved <= planned, (name, moved, planned)


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_sampled_layers_have_the_bits_of_a_run_in_memory(
    grid: tuple[int, int], tmp_path: Path
) -> None:
    cases = {name: case for name, case in catalogue().items() if case.program.layers > 1}
    programs = {n: (c.program, c.kind, c.weighted) for n, c in list(cases.items())[::6]}
    assert len(programs) > 5
    by_rank = on_grid(*grid, spill_layers, GRAPHS, programs, str(tmp_path), 3, set(), [3] * 9)
    for name in programs:
        for answer in (rank[name] for rank in by_rank):
            assert np.array_equal(answer.whole, answer.spilled), name
            assert not answer.checked.faults, name
