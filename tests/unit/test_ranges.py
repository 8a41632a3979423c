"""Row ranges: every node has one owner, nobody is left without rows, the work is balanced."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embertide.engine.stages.csr import cut_ranges
from embertide.grid import Grid, RowRanges
from embertide.spec.grid import GridShape


@st.composite
def histograms(draw: st.DrawFn) -> tuple[np.ndarray, int, int, Grid]:
    """Edges per bucket (often skewed), the bucket, N and a grid that fits."""
    grid = Grid(GridShape.of(draw(st.integers(1, 6)), draw(st.integers(1, 4))))
    nodes = draw(st.integers(grid.world, 400))
    bucket = 2 ** draw(st.integers(0, 4))
    count = (nodes - 1) // bucket + 1
    edges = st.integers(0, 20) | st.integers(0, 5000)
    histogram = draw(st.lists(edges, min_size=count, max_size=count))
    return np.array(histogram, np.int64), bucket, nodes, grid


@given(histograms())
def test_ranges_cover_all_nodes_and_leave_nobody_out(
    case: tuple[np.ndarray, int, int, Grid],
) -> None:
    histogram, bucket, nodes, grid = case
    ranges = cut_ranges(histogram, bucket, nodes, grid)
    assert ranges.nodes == nodes
    assert len(ranges.workers) == grid.world + 1
    covered = [node for rank in range(grid.world) for node in range(*ranges.worker(rank))]
    assert covered == list(range(nodes))
    for p in range(grid.graph):
        start, stop = ranges.partition(p)
        assert stop - start >= grid.feature
        assert {ranges.partition_of(node) for node in range(start, stop)} == {p}
        for m in range(grid.feature):
            low, high = ranges.within(grid.rank_of(p, m))
            assert (start + low, start + high) == ranges.worker(grid.rank_of(p, m))
            assert high > low


@given(histograms())
def test_no_partition_costs_much_more_than_its_share(
    case: tuple[np.ndarray, int, int, Grid],
) -> None:
    """Half nodes, half edges: at most a share, one bucket (cuts round to nodes), and the rows
    that the other partitions must be left."""
    histogram, bucket, nodes, grid = case
    ranges = cut_ranges(histogram, bucket, nodes, grid)
    total = max(1, int(histogram.sum()))
    widths = np.diff(np.minimum(np.arange(len(histogram) + 1) * bucket, nodes))
    spread = np.repeat(histogram / widths / total, widths)
    cost = 1 / nodes + spread
    allowed = cost.sum() / grid.graph + (1 + grid.world) * cost.max()
    for p in range(grid.graph):
        start, stop = ranges.partition(p)
        assert cost[start:stop].sum() <= allowed + 1e-9
    allowed = cost.sum() / grid.world + (1 + grid.world) * cost.max()
    for rank in range(grid.world):
        assert cost[slice(*ranges.worker(rank))].sum() <= allowed + 1e-9


@pytest.mark.parametrize("hub", [0, 4, 9])
def test_every_worker_has_a_row_when_all_edges_enter_one_node(hub: int) -> None:
    histogram = np.zeros(10, np.int64)
    histogram[hub] = 10**6
    for text in ("5x2", "4x2", "3x3", "10x1"):
        grid = Grid(GridShape.parse(text))
        bounds = cut_ranges(histogram, 1, 10, grid).workers
        assert (bounds[0], bounds[-1]) == (0, 10)
        assert min(np.diff(bounds)) >= 1


def test_a_hub_gets_a_partition_with_few_rows() -> None:
    degrees = np.ones(1000, np.int64)
    degrees[:10] = 10_000
    ranges = cut_ranges(degrees, 1, 1000, Grid(GridShape.of(2, 1)))
    # All edges are at the start, so the cut lies far before the middle, but not at the hubs.
    assert ranges == RowRanges((0, ranges.partitions[1], 1000), 1)
    assert 5 <= ranges.partitions[1] <= 20


@pytest.mark.parametrize("text", ["1x4", "2x2", "4x1"])
def test_nobody_has_twice_the_mean_of_rows_or_edges(text: str) -> None:
    """Ids in the order of their degrees, from 4,000 down: half the edges enter an eighth."""
    degrees = np.maximum(1, (4000 * np.exp(-np.arange(4000) / 700)).astype(np.int64))
    grid = Grid(GridShape.parse(text))
    bounds = np.array(cut_ranges(degrees, 1, 4000, grid).workers)
    edges = np.diff(np.concatenate([[0], degrees.cumsum()])[bounds])
    assert np.diff(bounds).max() <= 2 * 4000 / grid.world + 1
    assert edges.max() <= 2 * degrees.sum() / grid.world + degrees.max()
    # Even rows would give the first worker twice of that.
    assert degrees[:1000].sum() > 3 * degrees.sum() / grid.world
