"""Every model gives, on every grid, what the float64 reference gives in one process.

The self-check, which computes every row a second time, has nothing against them. On grids that
differ from others only in size, models take turns, but in the third tier.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.models.reference import run_reference
from embertide.steps import Program
from embertide.steps.base import KINDS
from embertide.steps.shapes import Shapes
from embertide.telemetry.self_check import SelfCheck
from tests.support.catalogue import GRAPHS, Case, catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all, embed_checked
from tests.support.world import make_features

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 2))
BY_TURNS = ((3, 1), (1, 3), (4, 1), (1, 4))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


@pytest.fixture(scope="module")
def expected(cases: dict[str, Case]) -> dict[str, np.ndarray]:
    """[N, D'] float64 of every case."""
    return {
        name: run_reference(
            case.program,
            [case.graph.layer()] * case.program.layers,
            make_features(case.program.input_width),
        ).numpy()
        for name, case in cases.items()
    }


@pytest.fixture(scope="module", params=GRIDS, ids="{0[0]}x{0[1]}".format)
def checked(
    request: pytest.FixtureRequest, cases: dict[str, Case]
) -> list[list[tuple[np.ndarray, SelfCheck]]]:
    """By rank of a grid the rows of every case, and what computing all of them again gives."""
    return on_grid(*request.param, embed_checked, GRAPHS, _given(cases))


def _given(cases: dict[str, Case]) -> list[tuple[Program, str, bool]]:
    return [(case.program, case.kind, case.weighted) for case in cases.values()]


def test_every_model_is_exact(
    checked: list[list[tuple[np.ndarray, SelfCheck]]], expected: dict[str, np.ndarray]
) -> None:
    assert not _wrong([[rows for rows, _ in of_rank] for of_rank in checked], expected)


def test_rows_that_are_computed_again_agree(
    checked: list[list[tuple[np.ndarray, SelfCheck]]], cases: dict[str, Case]
) -> None:
    found = [check for _, check in checked[0]]
    assert not {n: str(one.faults[0]) for n, one in zip(cases, found, strict=True) if one.faults}
    assert all(one.checked or one.skipped for one in found)


@pytest.mark.parametrize(("p", "m"), BY_TURNS)
def test_models_are_exact_by_turns(
    p: int,
    m: int,
    cases: dict[str, Case],
    expected: dict[str, np.ndarray],
    pytestconfig: pytest.Config,
) -> None:
    """On grids that differ from others only in size; no row is computed again."""
    turns = 1 if pytestconfig.option.tier == 3 else len(BY_TURNS)
    some = {name: cases[name] for name in list(cases)[BY_TURNS.index((p, m)) % turns :: turns]}
    answers = on_grid(p, m, embed_all, GRAPHS, _given(some))
    assert not _wrong(answers, {name: expected[name] for name in some})


def _wrong(by_rank: list[list[np.ndarray]], expected: dict[str, np.ndarray]) -> dict[str, float]:
    """Cases of which a row is not the expected one, and by how much."""
    wrong = {}
    for (name, values), *parts in zip(expected.items(), *by_rank, strict=True):
        found = np.concatenate(parts)
        assert found.dtype == np.float32
        error = relative_error(found, values)
        if not error <= TOLERANCE:
            wrong[name] = error
    return wrong


def test_cases_can_tell_models_apart(expected: dict[str, np.ndarray]) -> None:
    """No two models agree by accident (no weights that are zero, no graph without effect)."""
    values = [torch.from_numpy(value).flatten()[:50] for value in expected.values()]
    assert all(float(value.abs().max()) > 1e-3 for value in values)


def test_every_kind_of_step_is_tried_and_knows_its_columns(cases: dict[str, Case]) -> None:
    tried = set()
    for name, case in cases.items():
        program = case.program
        for step in program.steps:
            tried.add(step.kind_name)
            width = step.width(Shapes(program.widths, program.params))
            assert width == program.widths[step.out], f"{name}: {step}"
    assert tried == set(KINDS)
