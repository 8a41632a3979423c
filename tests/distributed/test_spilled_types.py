"""Tensors on disk, of several node types or of sampled layers, have the bits of those in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.catalogue import GRAPHS, catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.hetero_programs import described
from tests.support.plans import order_steps
from tests.support.ranks import on_grid
from tests.support.sharing_programs import additive, messages, pairs, read
from tests.support.spilled_layers import spill_layers, spill_typed
from tests.support.typed_programs import (
    attending,
    carrying,
    carrying_on,
    from_files,
    normed,
    relational,
    scaled,
    sharing,
)
from tests.support.typed_world import expected_of

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))
PROGRAMS = [
    relational(), attending(), from_files(), sharing(), normed(), carrying(), carrying_on(),
    additive(), pairs(), messages(), read(), scaled(),
]  # fmt: skip


@pytest.mark.parametrize("grid", GRIDS)
def test_every_type_has_the_bits_of_a_run_in_memory(
    grid: tuple[int, int], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    turns = 1 if pytestconfig.getoption("--thorough") else len(GRIDS)
    programs = [*PROGRAMS, *described(GRIDS.index(grid) % turns, turns)]
    ordered = [order_steps(program, grid[0] * grid[1]) for program in programs]
    by_rank = on_grid(*grid, spill_typed, ordered, str(tmp_path), 2)
    for number, program in enumerate(programs):
        answers = [rank[number] for rank in by_rank]
        for of_type, expected in expected_of(program).items():
            whole, spilled = (np.concatenate([a[way][of_type] for a in answers]) for way in (0, 1))
            assert np.array_equal(whole, spilled), (number, of_type)
            assert relative_error(spilled, expected) <= TOLERANCE, (number, of_type)
        assert not any(checked.faults for _, _, checked in answers), number
    assert not list(tmp_path.iterdir())


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
