"""Ranks, axes and column slices."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embertide.errors import GridError
from embertide.grid import ColumnSlices, Grid, check_fits, even_bounds
from embertide.spec.grid import GridShape

SIDES = st.integers(1, 7)


@given(SIDES, SIDES, st.data())
def test_axes_cross_in_one_rank(p: int, m: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, p * m - 1))
    grid = Grid(GridShape.of(p, m), rank)
    assert grid.rank_of(grid.p, grid.m) == rank
    for axis, size in ((grid.graph_axis, p), (grid.feature_axis, m), (grid.world_axis, p * m)):
        assert axis.size == size
        assert axis.ranks[axis.index] == rank
        assert sorted(axis.others()) == [i for i in range(size) if i != axis.index]
    assert set(grid.graph_axis.ranks) & set(grid.feature_axis.ranks) == {rank}


def test_the_next_member_comes_first() -> None:
    assert Grid(GridShape.of(4, 1), 2).graph_axis.others() == [3, 0, 1]


@given(st.integers(0, 1000), st.integers(1, 20))
def test_even_bounds_differ_by_one_at_most(total: int, count: int) -> None:
    bounds = even_bounds(total, count)
    sizes = [b - a for a, b in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(sizes)) == (0, total, count)
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 300), st.integers(1, 9))
def test_slices_cover_the_columns(width: int, count: int) -> None:
    slices = ColumnSlices(width, count)
    columns = [c for m in range(count) for c in range(*slices.bounds(m))]
    assert columns == list(range(width))
    assert max(map(slices.size, range(count))) == -(-width // count)


def test_grids_that_do_not_fit_are_refused() -> None:
    check_fits(GridShape.of(2, 3), 6, {"x": 3, "h": 9})
    with pytest.raises(GridError, match="6 workers but the graph has only 5 nodes; use at most 5"):
        check_fits(GridShape.of(2, 3), 5, {"x": 9})
    with pytest.raises(GridError, match="narrowest tensor of the model, h, has 2 columns"):
        check_fits(GridShape.of(2, 3), 6, {"x": 9, "h": 2})
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        GridShape.of(0, 3)
    with pytest.raises(GridError, match="rank 6 is outside a grid of 6 workers"):
        Grid(GridShape.of(2, 3), 6)


@pytest.mark.parametrize("text", ["1025x1", "64x17", "999999x999999"])
def test_a_job_has_a_maximum_of_workers(text: str) -> None:
    graph, feature = (int(side) for side in text.split("x"))
    with pytest.raises(ValueError, match=f"{graph * feature} workers; a job has at most 1024"):
        GridShape.parse(text)
    with pytest.raises(ValueError, match="1024"):
        GridShape.of(graph, feature)
    assert GridShape.parse("64x16").workers == 1024
