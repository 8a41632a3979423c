"""A run that goes on after a kept layer gives what a run of all layers gives, on every grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embertide.models.reference import run_reference
from tests.support.catalogue import catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.kept_layers import keep_layers, resume_layers
from tests.support.ranks import on_grid
from tests.support.world import GRAPHS, Case, make_features

pytestmark = pytest.mark.distributed

Grid = tuple[int, int]
OTHERS = (((3, 1), (1, 3)), ((1, 1), (2, 1)), ((4, 1), (2, 2)), ((2, 2), (3, 2)))
"""The grid that keeps layers, and the one that goes on after them."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    """Those of several layers: of one nothing is kept."""
    found = {name: case for name, case in catalogue().items() if case.program.layers > 1}
    assert len(found) > 50
    return found


def _turn(cases: dict[str, Case], at: int, config: pytest.Config) -> dict[str, Case]:
    """A quarter of the cases, but in the third tier."""
    names = list(cases)
    return {name: cases[name] for name in (names if config.option.tier == 3 else names[at::4])}


def _problems(first: Grid, second: Grid, cases: dict[str, Case], folder: Path) -> dict[str, object]:
    """What is wrong with runs of a grid that go on after the layers that another one kept."""
    programs = {name: (c.program, c.kind, c.weighted) for name, c in cases.items()}
    before = on_grid(*first, keep_layers, GRAPHS, programs, folder.as_uri())
    after = on_grid(*second, resume_layers, GRAPHS, programs, folder.as_uri())
    wrong: dict[str, object] = {}
    for name, case in cases.items():
        kept, layers = before[0][1][name], list(after[0][name][1])
        if kept != list(range(1, case.program.layers)) or layers != kept[::-1]:
            wrong[name] = kept, layers
            continue
        whole = np.concatenate([rank[name][0] for rank in after])
        same = np.array_equal(whole, np.concatenate([rank[0][name] for rank in before]))
        assert same or first != second
        for layer in layers:
            resumed = np.concatenate([rank[name][1][layer] for rank in after])
            error = relative_error(resumed, _expected(case))
            if (same and not np.array_equal(resumed, whole)) or not error <= TOLERANCE:
                wrong[f"{name} after layer {layer}"] = error
    return wrong


def _expected(case: Case) -> np.ndarray:
    """[N, D'] float64."""
    layers = [case.graph.layer()] * case.program.layers
    return run_reference(case.program, layers, make_features(case.program.input_width)).numpy()


@pytest.mark.parametrize(("first", "second"), OTHERS)
def test_another_grid_goes_on_with_the_bits_that_the_grids_share(
    first: Grid, second: Grid, cases: dict[str, Case], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Where whole runs of both have the same bits; else, as for all grids, up to rounding."""
    some = _turn(cases, OTHERS.index((first, second)), pytestconfig)
    assert not _problems(first, second, some, tmp_path)
