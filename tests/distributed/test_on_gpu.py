"""Every model gives on a GPU, on every grid, what the float64 reference gives in one process.

All ranks share one GPU and talk over NCCL's sockets.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.models.reference import run_reference
from tests.support.catalogue import catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.ranks import on_grid
from tests.support.spilled_layers import stage_layers
from tests.support.tasks import check_all, embed_all
from tests.support.world import GRAPHS, make_features

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1)])
def test_every_model_is_exact(p: int, m: int) -> None:
    cases = catalogue()
    programs = [(case.program, case.kind, case.weighted) for case in cases.values()]
    answers = on_grid(p, m, embed_all, GRAPHS, programs, device="cuda")
    wrong = {}
    for (name, case), *parts in zip(cases.items(), *answers, strict=True):
        layers = [case.graph.layer()] * case.program.layers
        given = make_features(case.program.input_width)
        expected = run_reference(case.program, layers, given).numpy()
        error = relative_error(np.concatenate(parts), expected)
        if not error <= TOLERANCE:
            wrong[name] = error
    assert not wrong


@pytest.mark.parametrize(("p", "m", "panel"), [(1, 1, 4), (2, 1, 5), (1, 2, 3), (2, 2, 3)])
def test_every_model_is_exact_with_its_tensors_in_host_memory(p: int, m: int, panel: int) -> None:
    cases = catalogue()
    programs = {name: (case.program, case.kind, case.weighted) for name, case in cases.items()}
    answers = on_grid(p, m, stage_layers, GRAPHS, programs, panel, device="cuda")
    wrong = {}
    for (name, case), *parts in zip(cases.items(), *answers, strict=True):
        layers = [case.graph.layer()] * case.program.layers
        features = make_features(case.program.input_width)
        expected = run_reference(case.program, layers, features).numpy()
        error = relative_error(np.concatenate(parts), expected)
        if not error <= TOLERANCE:
            wrong[name] = error
    assert not wrong


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 2)])
def test_right_rows_agree_when_they_are_computed_again(p: int, m: int) -> None:
    cases = catalogue()
    programs = [(case.program, case.kind, case.weighted) for case in cases.values()]
    (found, *_) = on_grid(p, m, check_all, GRAPHS, programs, device="cuda")
    wrong = {name: str(one.faults[0]) for name, one in zip(cases, found, strict=True) if one.faults}
    assert not wrong
