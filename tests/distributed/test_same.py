"""Every case gives, on every grid and in every mode, the rows of a whole run.

The first tier runs the cover; the second each case once, on grids by turns; the third all cases on
all grids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from embertide.steps.base import KINDS
from embertide.steps.shapes import Shapes
from tests.support.catalogue import catalogue
from tests.support.modes import Mode
from tests.support.same import cases_of, expected_rows, same

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))
OTHERS = ((3, 2), (3, 1), (1, 3), (4, 1), (1, 4))
PARTS = 10
"""Tests of all cases on a grid: as many as leave each far from the bound of a task of ranks."""

EXACT = Mode(name="exact")
ROUNDED = Mode(name="bfloat16", rows="bfloat16")
SAMPLED = Mode(name="sampled", fanout=3)


FIRST, SECOND, THIRD = pytest.mark.tier(1), pytest.mark.tier(2), pytest.mark.tier(3)


def _runs() -> Iterator[Any]:
    """Mode, cases, grid, with their tier."""
    every = (*GRIDS, *OTHERS)
    yield from (_run(EXACT, "cover", grid, FIRST) for grid in GRIDS)
    yield from (_run(EXACT, "cover of DGL", grid, SECOND, pytest.mark.dgl) for grid in GRIDS)
    for turn, grid in enumerate(every, 1):
        yield _run(EXACT, f"models {turn}/{len(every)}", grid, SECOND)
    yield _run(EXACT, "types", (3, 1), SECOND)
    yield from (_run(ROUNDED, "kinds", grid, SECOND) for grid in GRIDS)
    yield from (_run(ROUNDED, "types", grid, SECOND) for grid in ((2, 1), (2, 2)))
    for turn, grid in enumerate(((1, 1), (1, 2), (3, 1)), 1):
        yield _run(ROUNDED, f"types {turn}/3", grid, SECOND)
    yield from (_run(SAMPLED, "kinds", grid, SECOND) for grid in ((1, 1), (2, 1), (2, 2)))
    for grid in every:
        for part in range(PARTS):
            yield _run(EXACT, f"models {part + 1}/{PARTS}", grid, THIRD)
    yield from (_run(EXACT, "types", grid, THIRD) for grid in GRIDS)
    yield from (_run(ROUNDED, "types", grid, THIRD) for grid in ((1, 1), (1, 2), (3, 1)))


def _run(mode: Mode, group: str, grid: tuple[int, int], *marks: pytest.MarkDecorator) -> Any:
    label = f"{mode.name}-{group}-{grid[0]}x{grid[1]}".replace(" ", "-")
    return pytest.param(mode, group, grid, marks=marks, id=label)


@pytest.mark.parametrize(("mode", "group", "grid"), list(_runs()))
def test_cases_have_the_rows_of_a_whole_run(mode: Mode, group: str, grid: tuple[int, int]) -> None:
    same(cases_of(group), grid, mode)


@pytest.mark.tier(1)
def test_cases_can_tell_models_apart() -> None:
    """No two models agree by accident (no weights that are zero, no graph without effect)."""
    for name, case in catalogue().items():
        (rows,) = expected_rows(name, case).values()
        assert np.abs(rows.flatten()[:50]).max() > 1e-3, name


@pytest.mark.dgl  # No other model has steps of some kinds.
def test_every_kind_of_step_is_tried_and_knows_its_columns() -> None:
    tried = set()
    for name, case in catalogue().items():
        program = case.program
        for step in program.steps:
            tried.add(step.kind_name)
            width = step.width(Shapes(program.widths, program.params))
            assert width == program.widths[step.out], f"{name}: {step}"
    assert tried == set(KINDS)
