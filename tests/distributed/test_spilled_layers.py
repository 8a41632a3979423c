"""Layers whose tensors are on disk, or in host memory, have the bits of layers in memory.

For every model. Host memory is that beside a GPU, which is as late with its copies as it may be.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from embertide.kernels.lanes import Lane
from embertide.models.reference import run_reference
from embertide.steps.base import KINDS, EdgeStep
from embertide.steps.propagate import Propagate
from embertide.steps.reach import Reach
from tests.support.catalogue import catalogue
from tests.support.exact import TOLERANCE, relative_error
from tests.support.ranks import GROUPED, on_grid
from tests.support.same import cases_of
from tests.support.spilled_layers import Answer, Stored, spill_both, spill_layers
from tests.support.world import GRAPHS, NODES, Case, make_features

pytestmark = pytest.mark.distributed

BY_TURNS = [
    ((1, 1), 16), ((1, 1), 5), ((3, 1), 4), ((1, 2), 4), ((4, 1), 16), ((1, 4), 2), ((2, 1), 5),
]  # fmt: skip
"""Grids, and the columns of a panel, a multiple of what kernels take at a time or not, on which
models take turns, but in the third tier."""
WHOLE = {
    name
    for name, step in KINDS.items()
    if step.reach is not Reach.ROW and not (issubclass(step, EdgeStep) and step.by_parts)
}
"""Kinds of steps whose graph is in memory."""
HOST_PARTS = 4
"""All models take longer than a task of ranks may, where little processor time is left to it."""
HOST_GRIDS: list[tuple[tuple[int, int], int, tuple[Lane, ...]]] = [
    ((1, 1), 4, ("to device", "to host")),
    ((2, 1), 5, ("to host",)),
    ((1, 2), 3, ("to device",)),
]
"""Grids, the columns of a panel, and the lanes that are late with copies. Models take turns, but
in the third tier."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


@pytest.mark.parametrize(("grid", "panel"), BY_TURNS)
def test_every_model_has_the_bits_of_a_run_in_memory(
    grid: tuple[int, int],
    panel: int,
    cases: dict[str, Case],
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    if pytestconfig.option.tier != 3:
        some = list(cases)[BY_TURNS.index((grid, panel)) :: len(BY_TURNS)]
        cases = {name: cases[name] for name in some}
    programs = {name: (case.program, case.kind, case.weighted) for name, case in cases.items()}
    # Models take turns with the graph on disk, too, where ranks read each other's rows in place.
    graph_too = {
        name
        for number, name in enumerate(sorted(cases))
        if grid[1] == 1
        and grid[0] != GROUPED
        and number % 3 == panel % 3
        and not WHOLE.intersection(step.kind_name for step in cases[name].program.steps)
    }
    by_rank = on_grid(*grid, spill_layers, GRAPHS, programs, str(tmp_path), panel, graph_too)
    wrong = {}
    for name, case in cases.items():
        answers = [rank[name] for rank in by_rank]
        if problem := _problem(case, answers):
            wrong[name] = problem
    assert not wrong
    # Nothing that has a name was left there.
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", range(HOST_PARTS))
def test_workers_of_several_hosts_have_the_bits_of_a_run_in_memory(
    part: int, cases: dict[str, Case], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The cover, in the third tier every model, on disk and in host memory, as in memory."""
    names = cases if pytestconfig.option.tier == 3 else cases.keys() & cases_of("cover").keys()
    cases = {name: cases[name] for name in sorted(names)[part::HOST_PARTS]}
    programs = {name: (case.program, case.kind, case.weighted) for name, case in cases.items()}
    late: tuple[Lane, ...] = ("to device", "to host")
    by_rank = on_grid(2, 2, spill_both, GRAPHS, programs, str(tmp_path), 3, late)
    wrong = {
        f"{name} {where}": problem
        for number, where in enumerate(("on disk", "in host memory"))
        for name, case in cases.items()
        if (problem := _problem(case, [rank[name][number] for rank in by_rank]))
    }
    assert not wrong
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("grid", "panel", "late"), HOST_GRIDS)
def test_tensors_in_host_memory_give_the_same_bits(
    grid: tuple[int, int],
    panel: int,
    late: tuple[Lane, ...],
    cases: dict[str, Case],
    pytestconfig: pytest.Config,
) -> None:
    if pytestconfig.option.tier != 3:
        some = list(cases)[HOST_GRIDS.index((grid, panel, late)) :: len(HOST_GRIDS)]
        cases = {name: cases[name] for name in some}
    programs = {name: (case.program, case.kind, case.weighted) for name, case in cases.items()}
    task = partial(spill_layers, late=late)
    by_rank = on_grid(*grid, task, GRAPHS, programs, "", panel, set())
    assert not {
        name: problem
        for name, case in cases.items()
        if (problem := _problem(case, [rank[name] for rank in by_rank]))
    }


NARROWED = [
    "pyg GCN-layer_norm",
    "pyg sage-max-wide-normalize",
    "step propagate with a teleport",
    "dgl gat-weighted",
]
"""Models whose operations take panels or blocks, none of them whole tensors."""


def narrowed(
    grid: tuple[int, int], cases: dict[str, Case], names: list[str], values: int
) -> list[dict[str, Answer]]:
    """With panels of 12 columns, on devices where no tensor has more than some values."""
    some = {name: cases[name] for name in names}
    programs = {name: (case.program, case.kind, case.weighted) for name, case in some.items()}
    task = partial(spill_layers, late=("to device", "to host"), values=values)
    return on_grid(*grid, task, GRAPHS, programs, "", 12, set())


def test_panels_that_a_gpu_has_no_memory_for_are_cut(cases: dict[str, Case]) -> None:
    (answers,) = narrowed((1, 1), cases, NARROWED, 7 * NODES)
    for name, answer in answers.items():
        assert np.array_equal(answer.spilled, answer.whole), name
        assert not answer.checked.faults, name
    warned = {name: answer.warned[0] for name, answer in answers.items() if answer.warned}
    assert len(warned) > 2
    assert warned[NARROWED[0]].startswith(
        "the GPU had no memory for 8 columns of a tensor at a time: layers go on with 4 (memory"
    )


def test_repeated_sums_that_are_begun_again_agree_with_their_check(cases: dict[str, Case]) -> None:
    # There is no memory for the second sum of a panel whose first sum was compared.
    names = ["step propagate with a teleport", "step propagate the sum of hops"]
    programs = {name: (cases[name].program, cases[name].kind, cases[name].weighted)
                for name in names}  # fmt: skip
    task = partial(spill_layers, late=("to device", "to host"), summed=4)
    (answers,) = on_grid(1, 1, task, GRAPHS, programs, "", 12, set())
    for name, answer in answers.items():
        assert answer.warned, name
        assert np.array_equal(answer.spilled, answer.whole), name
        assert not answer.checked.faults, name


def test_panels_of_several_workers_are_not_cut(cases: dict[str, Case]) -> None:
    message = (
        "the GPU has no memory for [0-9]+ columns of a tensor at a time, which workers that"
        " exchange rows can't change; give workers a smaller --gpu-memory"
    )
    with pytest.raises(AssertionError, match=message):
        narrowed((2, 1), cases, NARROWED[:1], 2 * NODES)


def test_features_that_would_be_in_their_places_give_the_same_bits(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    """One worker with dense ids puts features in order at once, if they are in memory."""
    some = {name: case for name, case in cases.items() if "gcn" in name.lower()}
    assert len(some) > 5
    programs = {name: (case.program, case.kind, case.weighted) for name, case in some.items()}
    task = partial(spill_layers, placed=True)
    (answers,) = on_grid(1, 1, task, GRAPHS, programs, str(tmp_path), 16, set())
    assert not {
        name: problem for name, case in some.items() if (problem := _problem(case, [answers[name]]))
    }


def _problem(case: Case, answers: list[Answer]) -> str:
    """What is wrong with a case; "" where nothing is."""
    whole = np.concatenate([answer.whole for answer in answers])
    spilled = np.concatenate([answer.spilled for answer in answers])
    error = relative_error(spilled, _expected(case))
    stored = [answer.stored for answer in answers if answer.stored is not None]
    if stored and not np.array_equal(np.concatenate([own.rows for own in stored]), whole):
        return "other bits with the graph on disk"
    if len(stored) == 1 and not _as_planned(stored[0]):
        return f"graph on disk: {stored[0].moved} bytes moved of {stored[0].planned} planned"
    if not np.array_equal(spilled, whole) or not error <= TOLERANCE:
        return f"other bits, {error:.1e} from the reference"
    if faults := [fault for answer in answers for fault in answer.checked.faults]:
        return f"the self-check has {faults[0]}"
    sums = {rows.makes for rows in answers[0].checked.checked if ", sum " in rows.makes}
    if len(sums) != _inner_sums(case):
        return f"the self-check has seen {sums} of {_inner_sums(case)} sums"
    if any(answer.left > 1 for answer in answers):
        return "files stay beside the result"
    if len(answers) == 1 and (answers[0].read, answers[0].written) != answers[0].planned:
        return f"{answers[0].read}, {answers[0].written} bytes of {answers[0].planned} planned"
    return ""


def _inner_sums(case: Case) -> int:
    """Sums of repeated ones, all but the last, which the self-check sees while they are there."""
    return sum(step.times - 1 for step in case.program.steps if isinstance(step, Propagate))


def _as_planned(stored: Stored) -> bool:
    """All bytes; of self-loops that new ones take the place of, fewer than planned."""
    return all(
        0.97 * planned <= moved <= planned
        for moved, planned in zip(stored.moved, stored.planned, strict=True)
    )


def _expected(case: Case) -> np.ndarray:
    """[N, D'] float64."""
    layers = [case.graph.layer()] * case.program.layers
    return run_reference(case.program, layers, make_features(case.program.input_width)).numpy()
