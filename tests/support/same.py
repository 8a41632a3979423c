"""One harness for all ways in which a case runs: :func:`same` demands the rows of a whole run.

Rows in float32 are those of the float64 reference; what may differ from them is a mode's own.
"""

from __future__ import annotations

import functools

import numpy as np

from embertide.models.reference import run_reference
from embertide.steps.base import EdgeStep
from tests.support.catalogue import catalogue
from tests.support.cover import is_typed, needs_dgl, read_cover
from tests.support.exact import TOLERANCE, UNIT, relative_error
from tests.support.hetero_programs import typed_catalogue
from tests.support.modes import Answer, Mode, run_cases
from tests.support.ranks import on_grid
from tests.support.typed_world import expected_of
from tests.support.world import Case, make_features


@functools.cache
def every_case() -> dict[str, Case]:
    """Those of the catalogue, then those of several node types."""
    typed = {name: Case(program, "types", True) for name, program in typed_catalogue().items()}
    return catalogue() | typed


def cases_of(group: str) -> dict[str, Case]:
    """Some of the cases.

    Args:
        group: ``cover``, ``cover of DGL``, ``models``, ``types``, or ``kinds``: one with each kind
            of step over edges; ``models 2/9`` is every ninth of these from the second on.
    """
    every, kind, turn = every_case(), group, "1/1"
    if "/" in group:
        kind, _, turn = group.rpartition(" ")
    if kind == "models":
        names = list(catalogue())
    elif kind == "types":
        names = [name for name in every if is_typed(name)]
    elif kind == "kinds":
        names = sorted(_one_of_each(catalogue()))
    else:
        of_dgl = kind == "cover of DGL"
        names = [name for name in read_cover() if needs_dgl(name) == of_dgl]
    first, turns = map(int, turn.split("/"))
    return {name: every[name] for name in names[first - 1 :: turns]}


def _one_of_each(cases: dict[str, Case]) -> set[str]:
    """The first case with each kind of step over edges."""
    found: dict[str, str] = {}
    for name, case in cases.items():
        for step in case.program.steps:
            if isinstance(step, EdgeStep):
                found.setdefault(step.kind_name, name)
    return set(found.values())


def same(cases: dict[str, Case], grid: tuple[int, int], mode: Mode) -> dict[str, Answer]:
    """Run the cases on a grid, and fail with all that is wrong; what the first rank found."""
    by_rank: list[dict[str, Answer]] = on_grid(*grid, run_cases, cases, mode)
    wrong = {}
    for name, case in cases.items():
        answers = [rank[name] for rank in by_rank]
        found = [f"rank {at}: {text}" for at, one in enumerate(answers) for text in one.wrong]
        if found or (found := _compare(name, case, answers, mode)):
            wrong[name] = found
    assert not wrong, f"{mode.name} on {grid}: {wrong}"
    return by_rank[0]


def _compare(name: str, case: Case, answers: list[Answer], mode: Mode) -> list[str]:
    """What is wrong with the rows of all ranks; [] for nothing."""
    if mode.fanout:
        return []
    errors = {}
    for of_type, expected in expected_rows(name, case).items():
        found = np.concatenate([answer.rows[of_type] for answer in answers])
        assert found.dtype == np.float32
        errors[of_type] = relative_error(found, expected)
    worst = max(errors.values())
    if mode.rows == "float32":
        return [] if worst <= TOLERANCE else [f"off by {errors}"]
    # Not all types have edges, and not all sums are of what is rounded.
    most = 4 * UNIT * case.program.layers
    return [] if 1e-5 < worst <= most else [f"off by {errors}, not from 1e-5 to {most}"]


_EXPECTED: dict[str, dict[str, np.ndarray]] = {}


def expected_rows(name: str, case: Case) -> dict[str, np.ndarray]:
    """Node type -> [N, D'] float64, computed once for all grids and modes of a process."""
    if name not in _EXPECTED:
        program = case.program
        if case.kind == "types":
            found = expected_of(program)
        else:
            layers = [case.graph.layer()] * program.layers
            found = {"": run_reference(program, layers, make_features(program.input_width))}
        _EXPECTED[name] = {of_type: rows.numpy() for of_type, rows in found.items()}
    return _EXPECTED[name]
