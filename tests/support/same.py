"""One harness for all ways in which a case runs: :func:`same` demands the rows of a whole run.

Rows in float32 are those of the float64 reference; what may differ from them is a mode's own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embertide.models.reference import run_reference
from embertide.program.steps.base import EdgeStep
from tests.support.catalogue import catalogue
from tests.support.cover import is_typed, needs_dgl, read_cover
from tests.support.exact import TOLERANCE, UNIT, relative_error
from tests.support.hetero_programs import typed_catalogue
from tests.support.modes import SCRATCH, Answer, Mode, Rows, keep_cases, run_cases
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
            of step over edges; ``models 2/9`` is every ninth of these from the second on. Or names
            of cases, with commas.
    """
    every, kind, turn = every_case(), group, "1/1"
    if "/" in group:
        kind, _, turn = group.rpartition(" ")
    if kind == "models":
        names = list(catalogue())
    elif kind == "types":
        names = [name for name in every if is_typed(name)]
    elif "," in kind or kind in every:
        names = kind.split(", ")
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


def same(
    cases: dict[str, Case], grid: tuple[int, int], mode: Mode, folder: Path, device: str = "cpu"
) -> dict[str, Answer]:
    """Run the cases on a grid, and fail with all that is wrong; what the first rank found.

    Cases of one layer, of which nothing is kept, do not resume; cases of several types, whose days
    have no graph, do not refresh.
    """
    if mode.start == "resume":
        cases = {name: case for name, case in cases.items() if case.program.layers > 1}
    elif mode.start == "refresh":
        cases = {name: case for name, case in cases.items() if case.kind != "types"}
    assert cases
    uri, kept = folder.as_uri(), None
    (folder / SCRATCH).mkdir(exist_ok=True)
    if mode.kept_on:
        kept = on_grid(*mode.kept_on, keep_cases, cases, mode, uri, one_host=mode.one_host)
    by_rank: list[dict[str, Answer]] = on_grid(
        *grid, run_cases, cases, mode, uri, kept is None, one_host=mode.one_host, device=device
    )
    assert not any((folder / SCRATCH).iterdir()), "files have names"
    wrong = {}
    for name, case in cases.items():
        answers = [rank[name] for rank in by_rank]
        found = [f"rank {at}: {text}" for at, one in enumerate(answers) for text in one.wrong]
        whole = _joined([answer.rows for answer in answers])
        # Other bits than those of the whole run are right after layers of a run that had others.
        bits = kept is None or _equal(whole, _joined([rank[name] for rank in kept]))
        for label in answers[0].others:
            other = _joined([answer.others[label] for answer in answers])
            if bits and not _equal(other, whole):
                found.append(f"{label}: other bits")
            found += _compare(name, case, other, mode)
        found += [*_compare(name, case, whole, mode), *_unplanned(answers, mode)]
        if found:
            wrong[name] = found
    assert not wrong, f"{mode.name} on {grid}: {wrong}"
    return by_rank[0]


def _unplanned(answers: list[Answer], mode: Mode) -> Iterator[str]:
    """What all ranks move with the graph on disk is planned.

    Self-loops take the place of some that are there, and of equal edges one may be kept, so that
    fewer bytes are moved; so are of nodes with fewer edges than are sampled.
    """
    moved = [sum(each) for each in zip(*(answer.moved for answer in answers), strict=True)]
    least = 0.7 if mode.fanout else 0.8 if mode.edges else 0.97
    # Few rows of small graphs are far from what is expected of many.
    least, most = (0.8, 1.2) if answers[0].expected else (least, 1.0)
    for done, planned in zip(moved[:2], moved[2:], strict=True):
        if not least * round(planned) <= done <= most * round(planned):
            yield f"with the graph on disk {done} bytes moved of {planned} planned"


def _joined(by_rank: list[Rows]) -> Rows:
    """The rows of all ranks."""
    return {of_type: np.concatenate([rank[of_type] for rank in by_rank]) for of_type in by_rank[0]}


def _equal(rows: Rows, others: Rows) -> bool:
    return all(np.array_equal(rows[of_type], others[of_type]) for of_type in rows)


def _compare(name: str, case: Case, rows: Rows, mode: Mode) -> list[str]:
    """How far rows are from the reference, if that is too far; [] if not, and for no rows."""
    if mode.fanout or mode.edges or not rows:
        return []
    errors = {}
    for of_type, expected in expected_rows(name, case).items():
        assert rows[of_type].dtype == np.float32
        errors[of_type] = relative_error(rows[of_type], expected)
    worst = max(errors.values())
    if mode.rows == "float32":
        return [] if worst <= TOLERANCE else [f"off by {errors}"]
    # Not all types have edges, and not all sums are of what is rounded.
    least, most = 1e-5 if mode.start == "whole" else -1.0, 4 * UNIT * case.program.layers
    return [] if least < worst <= most else [f"off by {errors}, not from {least} to {most}"]


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
