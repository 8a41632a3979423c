"""Rows of every layer computed again: right ones agree for every model on every grid."""

from __future__ import annotations

import pytest

from tests.support.catalogue import GRAPHS, Case, catalogue
from tests.support.ranks import on_grid
from tests.support.tasks import check_all

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 2))
BY_TURNS = ((3, 1), (1, 3), (4, 1), (1, 4))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


@pytest.mark.parametrize(("p", "m"), [*GRIDS, *BY_TURNS])
def test_right_rows_of_every_model_agree(
    p: int, m: int, cases: dict[str, Case], pytestconfig: pytest.Config
) -> None:
    names = list(cases)
    if (p, m) in BY_TURNS and not pytestconfig.getoption("--thorough"):
        names = names[BY_TURNS.index((p, m)) :: len(BY_TURNS)]
    programs = [(cases[name].program, cases[name].kind, cases[name].weighted) for name in names]
    (found, *_) = on_grid(p, m, check_all, GRAPHS, programs)
    wrong = {name: str(one.faults[0]) for name, one in zip(names, found, strict=True) if one.faults}
    assert not wrong
    assert all(one.checked or one.skipped for one in found)
