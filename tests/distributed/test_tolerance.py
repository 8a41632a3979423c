"""Runs with a tolerance, day after day: what is kept and published is as wrong as it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embertide.engine.stages.infer import stale
from embertide.engine.stages.infer import tolerance as bounded
from embertide.engine.stages.infer.overlay import Overlay
from embertide.graph.exchange import Exchange
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import KeptTensor
from embertide.program.steps import Aggregate, Program
from embertide.program.steps.execution import Execution
from tests.support.catalogue import catalogue
from tests.support.modes import SCRATCH, Mode, placed
from tests.support.ranks import on_grid
from tests.support.refreshed import Answer, Cases, Day, refresh_cases
from tests.support.same import cases_of
from tests.support.world import NODES, Case, Graph, make_graph

pytestmark = pytest.mark.distributed

TOLERANCE, DAYS = 0.02, 20
ROUNDING = 2e-6
"""Of float32 rows, relative to their norm."""
DEEP = ["pyg GIN-batch_norm", "pyg jk-cat"]
"""Layers between others, of which it is known how far rows move at most."""
MODELS = ["pyg example sage", "pyg GAT", "made both single", *DEEP, "pyg example gcn", "dgl jk-cat"]
SPARED_RESULTS = ["made both single", "pyg jk-cat", "pyg example gcn", "dgl jk-cat"]
"""Of others every row of the results that changes reach is computed: there is no such bound of
their last layer, or it is larger than the tolerance."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    every = catalogue()
    return {name: every[name] for name in MODELS}


def days_of(graph: Graph, count: int = DAYS) -> list[Day]:
    """Each day features of some nodes drift, and two edges have other sources."""
    days, g, ids = [Day(graph, np.arange(NODES))], np.random.default_rng(3), np.arange(NODES)
    for number in range(1, count):
        src = graph.src.copy()
        src[g.choice(len(src), 2, replace=False)] = g.integers(0, 93, 2)
        graph = replace(graph, src=src)
        days.append(Day(graph, ids, drifts=number))
    return days


def run(
    cases: dict[str, Case], uri: str, grid: tuple[int, int], days: int = DAYS, **tolerance: float
) -> list[dict[str, list[Answer]]]:
    given = {n: (c.program, c.weighted, days_of(c.graph, days)) for n, c in cases.items()}
    return on_grid(*grid, partial(refresh_cases, **tolerance), given, uri, one_host=True)


def errors(answer: Answer) -> np.ndarray:
    """Of our rows, relative to the larger norm."""
    assert answer.rows is not None
    rows, whole = answer.rows.astype(np.float64), answer.whole.astype(np.float64)
    norms = np.maximum(np.linalg.norm(rows, axis=1), np.linalg.norm(whole, axis=1))
    return np.linalg.norm(rows - whole, axis=1) / np.maximum(norms, 1e-300)


BY_TURNS = {
    (1, 1): ["pyg example sage", "pyg GIN-batch_norm", "dgl jk-cat"],
    (2, 1): ["pyg GAT", "pyg example gcn"],
    (1, 2): ["made both single"],
    (2, 2): ["pyg jk-cat"],
}


@pytest.mark.parametrize("grid", BY_TURNS)
def test_errors_stay_within_the_tolerance_of_each_layer(
    grid: tuple[int, int], cases: dict[str, Case], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    names = BY_TURNS[grid]
    if pytestconfig.option.tier == 3:
        names = MODELS if grid == (1, 1) else MODELS[:6]
    by_rank: list[dict[str, list[Answer]]] = [{} for _ in range(grid[0] * grid[1])]
    for some in filter(
        None, (names[::2], names[1::2])
    ):  # all take longer than ranks may, where much else runs
        uri = (tmp_path / some[0]).as_uri()
        each = run({n: cases[n] for n in some}, uri, grid, tolerance=TOLERANCE, max_error=0.5)
        by_rank = [known | own for known, own in zip(by_rank, each, strict=True)]
    for name, days in by_rank[0].items():
        spared, unmoved, results = 0, 0, 0.0
        for number, answer in enumerate(days):
            assert not answer.why, (name, number)
            assert answer.checked
            assert not answer.beyond
            last = max(int(of.split()[0]) for of in answer.steps)
            for of, error in answer.steps.items():
                final = int(of.split()[0]) == last
                exact = final and name not in SPARED_RESULTS
                assert error <= (ROUNDING if exact else TOLERANCE + ROUNDING), (name, number, of)
                results = max(results, error if final else 0.0)
            spared += answer.facts.reached_edges - answer.facts.edges if number else 0
            unmoved += answer.facts.unmoved
            every = np.concatenate([errors(rank[name][number]) for rank in by_rank])
            # What was measured is the error of some of these rows.
            assert answer.facts.error <= every.max() + ROUNDING
            assert every.max() <= 0.5
            assert answer.facts.measured or not number
        assert (results > ROUNDING) == (name in SPARED_RESULTS), name
        assert unmoved > 0, name
        assert spared > 0, name
        assert max(answer.facts.error for answer in days) > ROUNDING, name


def all_that_are_reached(
    exchange: Exchange, cases: Cases, uri: str, **tolerance: float
) -> dict[str, list[Answer]]:
    """The same, but rows are computed though they cannot have moved by the tolerance."""
    bounded.have_bounds = lambda _ops: False
    return refresh_cases(exchange, cases, uri, **tolerance)


def test_rows_that_cannot_have_moved_are_not_computed(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    """Each bound holds for as long as it adds up: see the test of errors."""
    case = cases["pyg jk-cat"]
    given = {"jk": (case.program, case.weighted, days_of(case.graph, 4))}
    edges = []
    for number, task in enumerate((refresh_cases, all_that_are_reached)):
        uri = (tmp_path / str(number)).as_uri()
        some = partial(task, tolerance=0.1, max_error=0.9)
        (answers,) = on_grid(1, 1, some, given, uri, one_host=True)
        edges.append(sum(day.facts.edges for day in answers["jk"]))
    assert 0 < edges[0] < 0.9 * edges[1]


def bounds_too_small(
    exchange: Exchange, cases: Cases, uri: str, **tolerance: float
) -> dict[str, list[Answer]]:
    """The same, but rows are taken to move a thousandth of what they may, and only two of those
    that are taken to have stayed are looked at."""
    plain, stale.AUDITED_ROWS = bounded.bounds, 2
    stale.Stale._drawn = lambda self, _, of: torch.zeros_like(self._new(of))

    def wrong(*given: Any) -> Any:
        return {name: far.times(1e-3) for name, far in plain(*given).items()}

    bounded.bounds = wrong
    return refresh_cases(exchange, cases, uri, **tolerance)


def test_rows_that_move_farther_than_their_bound_are_found(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    case = cases["pyg jk-cat"]
    given = {"jk": (case.program, case.weighted, days_of(case.graph, 4))}
    task = partial(bounds_too_small, tolerance=1e-3, max_error=0.9)
    (answers,) = on_grid(1, 1, task, given, tmp_path.as_uri(), one_host=True)
    assert "that need not be computed are further than the tolerance" in answers["jk"][1].why


def kept_results_a_little_wrong(
    exchange: Exchange, cases: Cases, uri: str, **tolerance: float
) -> dict[str, list[Answer]]:
    """The same, but what was kept of results is off by less than the tolerance."""
    plain = stale.Overlay

    class Wrong(plain):
        def read(self, numbers: torch.Tensor) -> torch.Tensor:
            return super().read(numbers) * (1 + TOLERANCE / 100)

    def wrong(
        whole: Execution, kept: Kept, before: Mapping[str, torch.Tensor], tensor: KeptTensor
    ) -> Overlay:
        is_result = tensor.name in whole.program.results.values()
        return (Wrong if is_result else plain)(whole, kept, before, tensor)

    stale.Overlay = wrong
    return refresh_cases(exchange, cases, uri, **tolerance)


def test_results_whose_neighbours_have_not_moved_are_exact(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    case = cases["pyg example gcn"]
    given = {"gcn": (case.program, case.weighted, days_of(case.graph, 2))}
    task = partial(kept_results_a_little_wrong, tolerance=TOLERANCE, max_error=0.5)
    (answers,) = on_grid(1, 1, task, given, tmp_path.as_uri(), one_host=True)
    assert "that did not change have other bits" in answers["gcn"][1].why


def test_runs_with_rounded_rows_go_on(tmp_path: Path) -> None:
    """Rows may be rounded by more than a small tolerance, which no bound of a real number has."""
    steps = tuple(
        Aggregate(out=out, layer=layer, x=x, norm="in", loops="single")
        for layer, (x, out) in enumerate((("x", "a"), ("a", "b"), ("b", "c")))
    )
    program = Program(
        steps=steps, params={}, widths=dict.fromkeys("xabc", 5), layers=3, results={"": "c"}
    )
    given = {"sums": (program, False, days_of(make_graph(), 4))}
    some = partial(refresh_cases, inference={"rows": "bfloat16"}, tolerance=0.003, max_error=0.5)
    (answers,) = on_grid(1, 1, some, given, tmp_path.as_uri(), one_host=True)
    assert [day.why for day in answers["sums"]] == [""] * 4


def test_a_run_that_is_too_wrong_computes_all_rows(cases: dict[str, Case], tmp_path: Path) -> None:
    some = {MODELS[0]: cases[MODELS[0]]}
    (answers,) = run(some, tmp_path.as_uri(), (1, 1), days=4, tolerance=0.3, max_error=1e-5)
    whys = [day.why for day in answers[MODELS[0]][1:]]
    assert any("more than 1e-05 (refresh.maxError)" in why for why in whys)
    for day in answers[MODELS[0]]:
        if day.why:
            assert np.array_equal(day.rows, day.whole)


@pytest.mark.parametrize("grid", [(1, 1), (1, 2)])
def test_rows_that_are_not_finite_are_the_reason_for_all_rows(
    grid: tuple[int, int], cases: dict[str, Case], tmp_path: Path
) -> None:
    case = cases["pyg example sage"]
    days = [replace(day, huge=(5, 70)) for day in days_of(case.graph, 2)]
    given = {"sage": (case.program, case.weighted, days)}
    task = partial(refresh_cases, tolerance=TOLERANCE, max_error=0.5)
    by_rank = on_grid(*grid, task, given, tmp_path.as_uri(), one_host=True)
    for answers in by_rank:
        assert "not finite" in answers["sage"][1].why
        assert "refresh.tolerance" in answers["sage"][1].why


def with_tensors_on_disk(exchange: Exchange, names: str, uri: str) -> list[list[bool]]:
    """Whether days with a tolerance are those of tensors in memory: bits, edges, the error."""
    mode = Mode(name="on-disk", storage="disk", panel=5)
    given = {
        name: (case.program, case.weighted, days_of(case.graph, 3))
        for name, case in cases_of(names).items()
    }
    some = partial(refresh_cases, exchange, given, tolerance=0.1, max_error=0.9)
    place = partial(placed, storage="disk", mode=mode, folder=uri)
    in_memory, on_disk = some(f"{uri}/memory"), some(f"{uri}/disk", place=place)
    return [
        [
            np.array_equal(day.rows, other.rows),
            (day.why, day.edges, day.facts.error) == (other.why, other.edges, other.facts.error),
        ]
        for name in given
        for day, other in zip(in_memory[name], on_disk[name], strict=True)
    ]


def test_days_with_tensors_on_disk_are_those_of_tensors_in_memory(tmp_path: Path) -> None:
    (tmp_path / SCRATCH).mkdir()
    names = "pyg example sage, pyg example gcn"
    for found in on_grid(2, 1, with_tensors_on_disk, names, tmp_path.as_uri(), one_host=True):
        assert len(found) == 6
        assert all(map(all, found))
