"""Some rows of every model are those that a run of all rows gives, from what they need alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.support.catalogue import catalogue
from tests.support.chosen_rows import SETS, Cases, Chosen, embed_sets, embed_typed_sets
from tests.support.exact import TOLERANCE
from tests.support.hetero_programs import described
from tests.support.ranks import on_grid
from tests.support.typed_programs import (
    attending,
    carrying,
    from_files,
    normed,
    relational,
    scaled,
    sharing,
)
from tests.support.world import GRAPHS, Case

pytestmark = pytest.mark.distributed

BY_TURNS = ((2, 1), (1, 2), (2, 2), (3, 1))
"""Grids that take the models by turns, but in the third tier."""
PROGRAMS = [relational(), attending(), from_files(), sharing(), normed(), carrying(), scaled()]


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


def _given(cases: dict[str, Case], names: Iterable[str]) -> Cases:
    return {name: (cases[name].program, cases[name].kind, cases[name].weighted) for name in names}


def _wrong(ranks: list[Chosen], allowed: float) -> str:
    """What is wrong of a set of rows; "" for nothing."""
    for one in ranks:
        if one.rows.shape != one.expected.shape:
            return f"shape {one.rows.shape}, not {one.expected.shape}"
        error = np.abs(one.rows - one.expected).max(initial=0.0) / max(1e-9, one.largest)
        if not error <= allowed:
            return f"off by {error}"
        if beyond := sum(found.beyond for found in one.checked.checked):
            return f"{beyond} rows are beyond the self-check's bound"
    facts = ranks[0].facts
    if facts.why or not 0 <= facts.edges <= facts.all_edges:
        return str(facts)
    return ""


def _problems(
    cases: dict[str, Case], by_rank: list[dict[str, list[Chosen]]], exact: bool
) -> dict[str, str]:
    problems = {}
    for name in by_rank[0]:
        bits = exact and all(step.exact_alone for step in cases[name].program.steps)
        for number in range(len(by_rank[0][name])):
            ranks = [answers[name][number] for answers in by_rank]
            if wrong := _wrong(ranks, 0.0 if bits else TOLERANCE):
                problems[f"{name}, set {number}"] = wrong
    return problems


def test_some_rows_of_every_model_have_the_bits_of_all(cases: dict[str, Case]) -> None:
    """Up to rounding where a step may round in another way among other rows."""
    answers = on_grid(1, 1, embed_sets, GRAPHS, _given(cases, cases))
    assert not _problems(cases, answers, exact=True)
    facts = [one.facts for of_case in answers[0].values() for one in of_case]
    assert sum(of.edges for of in facts) < 0.6 * sum(of.all_edges for of in facts)
    assert all(one.checked.rows for of_case in answers[0].values() for one in of_case)


@pytest.mark.parametrize("grid", BY_TURNS)
def test_so_do_they_on_grids(
    grid: tuple[int, int], cases: dict[str, Case], pytestconfig: pytest.Config
) -> None:
    names = list(cases)
    if pytestconfig.option.tier != 3:
        names = names[BY_TURNS.index(grid) :: 2 * len(BY_TURNS)]
    answers = on_grid(*grid, embed_sets, GRAPHS, _given(cases, names), one_host=True)
    assert not _problems(cases, answers, exact=True)


def test_workers_of_several_hosts_give_them_up_to_rounding(
    cases: dict[str, Case], pytestconfig: pytest.Config
) -> None:
    names = list(cases)[:: 1 if pytestconfig.option.tier == 3 else 8]
    answers = on_grid(2, 2, embed_sets, GRAPHS, _given(cases, names))
    assert not _problems(cases, answers, exact=False)


def test_rows_of_samples_are_those_of_the_same_samples(cases: dict[str, Case]) -> None:
    names = ["pyg example sage", "pyg example gcn", "pyg gat-heads", "dgl gcn-both-wide"]
    fanout = {"fanout": [3] * 4, "seed": 7}
    answers = on_grid(2, 1, embed_sets, GRAPHS, _given(cases, names), SETS[:3], fanout)
    assert not _problems(cases, answers, exact=True)


def test_all_rows_are_computed_where_tensors_are_on_disk(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    given = _given(cases, ["pyg example sage"])
    by_rank = on_grid(2, 1, embed_sets, GRAPHS, given, SETS[:3], None, str(tmp_path))
    for number in range(3):
        ranks = [answers["pyg example sage"][number] for answers in by_rank]
        assert all(np.array_equal(one.rows, one.expected) for one in ranks)
        assert sum(len(one.rows) for one in ranks) == len(SETS[number])
        assert ranks[0].facts.why == (
            "tensors of nodes are on disk, since they exceed the memory of a worker"
        )


@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_rows_of_a_type_need_those_of_others(grid: tuple[int, int]) -> None:
    programs = [*PROGRAMS, *described(0, 4)]
    by_rank = on_grid(*grid, embed_typed_sets, programs, 9)
    wrong = {}
    for number in range(len(programs)):
        for key in by_rank[0][number]:
            ranks = [answers[number][key] for answers in by_rank]
            if problem := _wrong(ranks, TOLERANCE):
                wrong[number, key] = problem
    assert not wrong
