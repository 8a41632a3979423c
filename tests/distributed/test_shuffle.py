"""The rows that a rank gets do not depend on the rounds in which their edges came."""

from __future__ import annotations

import pytest

from tests.support.ranks import on_grid
from tests.support.tasks import build_in_rounds
from tests.support.world import make_graph

pytestmark = pytest.mark.distributed


@pytest.mark.tier(1)
@pytest.mark.parametrize(("weighted", "features"), [(False, 0), (True, 0), (True, 2)])
def test_many_small_rounds_make_the_same_rows(weighted: bool, features: int) -> None:
    graph = make_graph(weighted=weighted, features=features)
    at_once, in_rounds = (on_grid(3, 1, build_in_rounds, graph, size) for size in (1 << 24, 3 * 7))
    assert at_once == in_rounds
    assert sum(len(cols) for _, cols, *_ in at_once) == len(graph.src)
