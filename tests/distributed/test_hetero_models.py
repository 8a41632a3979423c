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
ON_GRIDS = [
    ("pyg", "rgcn-bases"), ("pyg", "hetero-deep"), ("dgl", "hetero-attention"), ("pyg", "han"),
    ("pyg", "hetero-weighted"), ("pyg", "hgt"), ("pyg", "rgcn-bases-narrow"),
    ("dgl", "rgcn-by-all"), ("pyg", "hetero-sum"), ("pyg", "rgcn-blocks"),
    ("pyg", "hetero-featureless"), ("dgl", "hgt-norm"), ("pyg", "hetero-cat"),
    ("dgl", "hetero-deep"), ("pyg", "rgcn-max"),
]  # fmt: skip
"""Cases whose steps differ."""


def _program(library: str, name: str) -> Program:
    """Those with edge weights as any other, since the graph has some."""
    cases, nn = TABLES[library]
    return cases[name].program(library, shaken(cases[name], nn))


@pytest.mark.parametrize("turn", range(len(GRIDS)))
def test_described_models_are_exact(turn: int, pytestconfig: pytest.Config) -> None:
    names = ON_GRIDS if pytestconfig.getoption("--thorough") else ON_GRIDS[turn :: len(GRIDS)]
    programs = {one: _program(*one) for one in names if TABLES[one[0]][1] is not None}
    p, m = GRIDS[turn]
    by_rank = on_grid(p, m, embed_types, [order_steps(one, p * m) for one in programs.values()])
    for number, (name, program) in enumerate(programs.items()):
        for of_type, expected in expected_of(program).items():
            found = np.concatenate([answers[number][of_type] for answers in by_rank])
            assert len(found) == COUNTS[of_type]
            assert relative_error(found, expected) <= TOLERANCE, (name, of_type)
