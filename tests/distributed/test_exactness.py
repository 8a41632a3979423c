"""Every model gives, on every grid, what the float64 reference gives in one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.models.reference import run_reference
from embertide.steps.base import KINDS
from embertide.steps.shapes import Shapes
from tests.support.catalogue import GRAPHS, Case, catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.world import make_features

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (4, 1), (1, 4), (3, 2))


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


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_every_model_is_exact(
    p: int, m: int, cases: dict[str, Case], expected: dict[str, np.ndarray]
) -> None:
    programs = [(case.program, case.kind, case.weighted) for case in cases.values()]
    answers = on_grid(p, m, embed_all, GRAPHS, programs)
    wrong = {}
    for name, *parts in zip(cases, *answers, strict=True):
        found = np.concatenate(parts)
        assert found.dtype == np.float32
        error = relative_error(found, expected[name])
        if not error <= TOLERANCE:
            wrong[name] = error
    assert not wrong


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
