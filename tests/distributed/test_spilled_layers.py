"""Layers whose tensors are on disk have the bits of layers in memory, for every model that can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embertide.models.reference import run_reference
from embertide.steps.base import KINDS
from embertide.steps.reach import Reach
from tests.support.catalogue import GRAPHS, Case, catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.ranks import on_grid
from tests.support.spilled_layers import Answer, spill_layers
from tests.support.world import make_features

pytestmark = pytest.mark.distributed

GRIDS = [((1, 1), 16), ((1, 1), 5), ((3, 1), 4)]
"""Grids, and the columns of a panel: a multiple of what kernels take at a time, or not."""
WHOLE = {
    name for name, step in KINDS.items() if step.reach is not Reach.ROW and not step.columns_apart
}
"""Kinds of steps that need whole tensors in memory."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


@pytest.mark.parametrize(("grid", "panel"), GRIDS)
def test_every_model_has_the_bits_of_a_run_in_memory(
    grid: tuple[int, int], panel: int, cases: dict[str, Case], tmp_path: Path
) -> None:
    programs = {name: (case.program, case.kind, case.weighted) for name, case in cases.items()}
    # Models take turns with the graph on disk, too.
    graph_too = {name for number, name in enumerate(sorted(cases)) if number % 3 == panel % 3}
    by_rank = on_grid(*grid, spill_layers, GRAPHS, programs, str(tmp_path), panel, graph_too)
    wrong = {}
    for name, case in cases.items():
        answers = [rank[name] for rank in by_rank]
        if WHOLE.intersection(step.kind_name for step in case.program.steps):
            assert all(isinstance(answer, list) for answer in answers), name
        elif problem := _problem(case, [a for a in answers if isinstance(a, Answer)]):
            wrong[name] = problem
    assert not wrong
    # Nothing that has a name was left there.
    assert not list(tmp_path.iterdir())


def _problem(case: Case, answers: list[Answer]) -> str:
    """What is wrong with a case; "" where nothing is."""
    whole = np.concatenate([answer.whole for answer in answers])
    spilled = np.concatenate([answer.spilled for answer in answers])
    error = relative_error(spilled, _expected(case))
    stored = [answer.stored for answer in answers if answer.stored is not None]
    if stored and not np.array_equal(np.concatenate(stored), whole):
        return "other bits with the graph on disk"
    if not np.array_equal(spilled, whole) or not error <= TOLERANCE:
        return f"other bits, {error:.1e} from the reference"
    if faults := [fault for answer in answers for fault in answer.checked.faults]:
        return f"the self-check has {faults[0]}"
    if any(answer.left > 1 for answer in answers):
        return "files stay beside the result"
    if len(answers) == 1 and (answers[0].read, answers[0].written) != answers[0].planned:
        return f"{answers[0].read}, {answers[0].written} bytes of {answers[0].planned} planned"
    return ""


def _expected(case: Case) -> np.ndarray:
    """[N, D'] float64."""
    layers = [case.graph.layer()] * case.program.layers
    return run_reference(case.program, layers, make_features(case.program.input_width)).numpy()
