"""Described models of several node types are exact on grids, which take turns."""

from __future__ import annotations

import numpy as np
import pytest

from embertide.models.order import order_steps
from embertide.steps import Program
from tests.support import hetero_cases_dgl, hetero_cases_pyg
from tests.support.exact import TOLERANCE, relative_error
from tests.support.hetero_case import shaken
from tests.support.model_examples_dgl import dgl
from tests.support.pyg import pyg
from tests.support.ranks import on_grid
from tests.support.typed_world import COUNTS, embed_types, expected_of

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1))
TABLES = {
    "pyg": (hetero_cases_pyg.CASES, pyg),
    "dgl": (hetero_cases_dgl.CASES, None if dgl is None else dgl.nn.pytorch),
}


def _programs() -> dict[str, Program]:
    """Every case; those with edge weights as any other, since the graph has some."""
    return {
        f"{library} {name}": case.program(library, shaken(case, nn))
        for library, (cases, nn) in TABLES.items()
        if nn is not None
        for name, case in cases.items()
    }


@pytest.mark.parametrize("turn", range(len(GRIDS)))
@pytest.mark.filterwarnings("ignore:There exist node types")
def test_described_models_are_exact(turn: int, pytestconfig: pytest.Config) -> None:
    programs = _programs()
    if not pytestconfig.getoption("--thorough"):
        mine = list(programs)[turn :: len(GRIDS)]
        programs = {name: programs[name] for name in mine}
    p, m = GRIDS[turn]
    by_rank = on_grid(p, m, embed_types, [order_steps(one, p * m) for one in programs.values()])
    for number, (name, program) in enumerate(programs.items()):
        for of_type, expected in expected_of(program).items():
            found = np.concatenate([answers[number][of_type] for answers in by_rank])
            assert len(found) == COUNTS[of_type]
            assert relative_error(found, expected) <= TOLERANCE, (name, of_type)
