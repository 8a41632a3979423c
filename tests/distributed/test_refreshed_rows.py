"""Runs that compute what has changed since the day before have the bits of whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.catalogue import catalogue
from tests.support.ranks import on_grid
from tests.support.refreshed import Answer, Day, refresh_cases
from tests.support.world import NODES, Case, Graph

pytestmark = pytest.mark.distributed

Grid = tuple[int, int]
BY_TURNS = ((2, 1), (1, 2), (2, 2), (3, 1))
"""Grids that take the models by turns, but in the third tier."""
MANY = 90
"""Of the models, those whose rows can be computed alone; others need all rows, and say why."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


def days_of(graph: Graph) -> list[Day]:
    """As it is; two edges fewer, two more and another weight; a node gone and another one new;
    other features of one node."""
    ids, keep = np.arange(NODES), np.ones(len(graph.src), bool)
    keep[[5, 77]] = False
    second = Day(_changed(graph, keep, [(31, 60), (88, 61)]), ids)
    third = _without(second, 40)
    return [Day(graph, ids), second, third, replace(third, moved=(70,))]


def _changed(graph: Graph, keep: np.ndarray, added: list[tuple[int, int]]) -> Graph:
    """Some of the edges, one with another weight, and others beside them."""
    src, dst = np.array(added).T
    weight, features = graph.weight, graph.features
    if weight is not None:
        weight = np.concatenate([weight[keep], np.ones(len(added), np.float32)])
        weight[9] += 0.5
    if features is not None:
        more = np.ones((len(added), features.shape[1]), np.float32)
        features = np.concatenate([features[keep], more])
    ends = np.concatenate([graph.src[keep], src]), np.concatenate([graph.dst[keep], dst])
    return Graph(*ends, weight, graph.nodes, features)


def _without(day: Day, node: int) -> Day:
    """Without a node; the last place is a new one's, which has an edge of each kind."""
    graph = day.graph
    left = _changed(graph, (graph.src != node) & (graph.dst != node), [(12, 97), (97, 13)])
    number = np.arange(graph.nodes + 1)
    number[node + 1 :] -= 1
    renumbered = replace(left, src=number[left.src], dst=number[left.dst])
    return Day(renumbered, np.concatenate([np.delete(day.ids, node), [200]]))


def _problems(by_rank: list[dict[str, list[Answer]]]) -> dict[str, object]:
    """Answers that are not those of whole runs, or that are for a reason that should not be."""
    wrong: dict[str, object] = {}
    for name, days in by_rank[0].items():
        for day, first in enumerate(days):
            answers = [rank[name][day] for rank in by_rank]
            if first.rows is None:
                assert first.why
                continue
            same = all(np.array_equal(one.rows, one.whole) for one in answers)
            if not same or first.why or first.beyond or not first.checked:
                wrong[f"{name}, day {day}"] = same, first.why, first.beyond, first.checked
    return wrong


def _alone(days: list[Answer]) -> bool:
    return days[0].rows is not None


def test_every_model_has_the_bits_of_a_whole_run(cases: dict[str, Case], tmp_path: Path) -> None:
    given = {name: (c.program, c.weighted, days_of(c.graph)) for name, c in cases.items()}
    (answers,) = on_grid(1, 1, refresh_cases, given, tmp_path.as_uri())
    assert not _problems([answers])
    alone = [days for days in answers.values() if _alone(days)]
    assert len(alone) >= MANY
    # Sums over one layer go over few of the edges.
    assert min(days[3].edges / days[3].all_edges for days in alone) < 0.15


@pytest.mark.parametrize("grid", BY_TURNS)
def test_grids_have_the_bits_of_a_whole_run(
    grid: Grid, cases: dict[str, Case], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    names = list(cases)
    if pytestconfig.option.tier != 3:
        names = names[BY_TURNS.index(grid) :: 2 * len(BY_TURNS)]
    given = {n: (cases[n].program, cases[n].weighted, days_of(cases[n].graph)) for n in names}
    answers = on_grid(*grid, refresh_cases, given, tmp_path.as_uri(), one_host=True)
    assert not _problems(answers)
    assert any(_alone(days) for days in answers[0].values())


def test_samples_of_rows_that_did_not_change_stay(cases: dict[str, Case], tmp_path: Path) -> None:
    names = ["pyg example sage", "pyg example gcn", "pyg gat-heads", "dgl gcn-both-wide"]
    given = {n: (cases[n].program, cases[n].weighted, days_of(cases[n].graph)) for n in names}
    fanout = {"fanout": [3] * 4, "seed": 7}
    answers = on_grid(2, 1, refresh_cases, given, tmp_path.as_uri(), fanout)
    assert not _problems(answers)
    assert answers[0]["dgl gcn-both-wide"][1].why.endswith("reads out-degrees of samples")
    assert _alone(answers[0]["pyg example sage"])


def test_rows_in_bfloat16_have_the_bits_of_a_whole_run(
    cases: dict[str, Case], tmp_path: Path
) -> None:
    names = ["pyg example sage", "pyg example gcn", "pyg gat-heads", "pyg gin-mlp", "dgl jk-cat"]
    given = {n: (cases[n].program, cases[n].weighted, days_of(cases[n].graph)) for n in names}
    answers = on_grid(2, 1, refresh_cases, given, tmp_path.as_uri(), {"rows": "bfloat16"})
    assert not _problems(answers)
    assert all(_alone(days) for days in answers[0].values())


def test_statistics_over_all_nodes_take_all_rows(cases: dict[str, Case], tmp_path: Path) -> None:
    name = "pyg GCN-pair_norm"
    given = {name: (cases[name].program, False, days_of(cases[name].graph))}
    (answers,) = on_grid(1, 1, refresh_cases, given, tmp_path.as_uri())
    assert answers[name][1].why == (
        "0.graph_norm (graph_norm, layer 1) needs a statistic over all nodes"
    )
