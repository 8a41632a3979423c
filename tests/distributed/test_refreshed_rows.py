"""Runs that compute what has changed since the day before have the bits of whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.catalogue import GRAPHS, Case, catalogue
from tests.support.ranks import on_grid
from tests.support.refreshed import Answer, Day, refresh_cases
from tests.support.world import NODES, Graph

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return catalogue()


def days_of(graph: Graph) -> list[Day]:
    """Four days: as it is; edges and weights that differ; nodes that come and go; other features."""
    ids = np.arange(NODES)
    first = Day(graph, ids)
    keep = np.ones(len(graph.src), bool)
    keep[[5, 77]] = False
    second = Day(_picked(graph, keep, [(31, 60), (88, 61)]), ids)
    if graph.weight is not None:
        weight = second.graph.weight.copy()  # type: ignore[union-attr]
        weight[9] += 0.5
        second = replace(second, graph=replace(second.graph, weight=weight))
    return [first, second, _without(second, 40), replace(_without(second, 40), moved=(70,))]


def _picked(graph: Graph, keep: np.ndarray, added: list[tuple[int, int]]) -> Graph:
    """Some of the edges, and others beside them."""
    src, dst = np.array(added).T
    ones = np.ones(len(added), np.float32)
    features = None
    if graph.features is not None:
        more = np.tile(ones[:, None], (1, graph.features.shape[1]))
        features = np.concatenate([graph.features[keep], more])
    return Graph(
        np.concatenate([graph.src[keep], src]),
        np.concatenate([graph.dst[keep], dst]),
        None if graph.weight is None else np.concatenate([graph.weight[keep], ones]),
        graph.nodes,
        features,
    )


def _without(day: Day, node: int) -> Day:
    """Without a node, whose place another one takes that has one edge."""
    graph = day.graph
    keep = (graph.src != node) & (graph.dst != node)
    left = _picked(graph, keep, [])if False else _picked(graph, keep, [(12, 96), (96, 13)])
    ids = np.concatenate([np.delete(day.ids, node), [200]])
    number = np.arange(graph.nodes)
    number[node + 1 :] -= 1
    return Day(replace(left, src=number[left.src], dst=number[left.dst]), ids)


import os
def test_one(cases: dict[str, Case], tmp_path: Path) -> None:
    import ast
    grid=tuple(map(int,os.environ.get("G","1x1").split("x")))
    want=os.environ.get("K","").split(",")
    given = {n: (c.program, c.weighted, days_of(c.graph)) for n, c in cases.items() if any(w in n for w in want)}
    by_rank = on_grid(*grid, refresh_cases, given, tmp_path.as_uri(), one_host=True)
    for name in given:
        ok=[all(r[name][i].rows is None or np.array_equal(r[name][i].rows,r[name][i].whole) for r in by_rank) for i in range(4)]
        a=by_rank[0][name]
        if a[0].why: 
            continue
        bad = not all(ok) or any(x.why for x in a) or any(r[name][i].beyond for r in by_rank for i in range(4))
        if bad or os.environ.get("V"): print(name, ok, [(x.why, x.edges, x.all_edges, x.checked, x.beyond) for x in a])
    print(sum(1 for n in given if not by_rank[0][n][0].why), len(given))
