"""Windows over shared memory, and where nodes are in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.graph.in_place import SPAN_ROWS, WindowRows
from embertide.kernels import memory, native

pytestmark = pytest.mark.skipif(native.lib is None, reason="only native kernels map memory")


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_nodes_are_found_behind_the_start_of_their_rank(kind: torch.dtype) -> None:
    window = WindowRows(np.array([0, 4, 4, SPAN_ROWS + 5, SPAN_ROWS + 9]))
    assert window.starts.tolist() == [0, SPAN_ROWS, SPAN_ROWS, 3 * SPAN_ROWS]
    assert window.end == 3 * SPAN_ROWS + 4
    nodes = torch.tensor([SPAN_ROWS + 8, 0, 4, SPAN_ROWS + 4, 3], dtype=kind)
    rows = window.of_nodes(nodes)
    assert rows.dtype == kind
    assert rows.tolist() == [3 * SPAN_ROWS + 3, 0, SPAN_ROWS, 2 * SPAN_ROWS, 3]


def test_rows_of_a_window_are_wide_where_it_is_large() -> None:
    window = WindowRows(np.array([0, 2**31 - SPAN_ROWS, 2**31 - 1]))
    assert window.of_nodes(torch.tensor([5, 2**31 - 2], dtype=torch.int32)).dtype == torch.int32
    window = WindowRows(np.array([0, 1, 2**31 - 2, 2**31 - 1]))
    rows = window.of_nodes(torch.tensor([2**31 - 2], dtype=torch.int32))
    assert rows.tolist() == [SPAN_ROWS + 2**31]


def test_rows_of_one_window_are_found_in_another() -> None:
    """Of nodes that other ranks have; some have none."""
    first = WindowRows(np.array([0, 0, 5, 5, 9, 20]))
    second = WindowRows(np.array([0, 7, 7, 8, 20]))
    nodes = torch.arange(20, dtype=torch.int32)
    for here, there in ((first, second), (second, first), (first, first)):
        rows = here.of_rows(there.of_nodes(nodes), there)
        assert rows.dtype == torch.int32
        assert rows.tolist() == here.of_nodes(nodes).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 16, 17, 40])
def test_many_nodes_are_found_among_few_and_many_ranks(ranks: int) -> None:
    random = np.random.default_rng(ranks)
    bounds = np.sort(np.append(random.integers(0, 9000, ranks - 1), [0, 9000]))
    window, nodes = WindowRows(bounds), random.integers(0, 9000, 5000)
    owners = np.searchsorted(bounds, nodes, "right") - 1
    expected = window.starts[owners] + nodes - bounds[owners]
    for kind in (torch.int32, torch.int64):
        rows = window.of_nodes(torch.from_numpy(nodes).to(kind))
        np.testing.assert_array_equal(rows.numpy(), expected)


def test_a_node_that_nobody_owns_is_refused() -> None:
    window = WindowRows(np.array([0, 4, 8]))
    for node in (-1, 8):
        with pytest.raises(ValueError, match="outside the bounds"):
            window.of_nodes(torch.tensor([node]))


@pytest.mark.parametrize("part", [(0, 1, 8, 0), (0, 0, 8, 4), (0, 0, 1 << 20, 0)])
def test_parts_begin_at_pages_and_lie_within(part: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must start at pages and lie within"):
        memory.window((100, 3), torch.float32, [part])


def test_memory_that_is_not_shared_is_in_no_file() -> None:
    own = memory.empty((1 << 22,))
    assert native.lib.place_in_file(own.data_ptr(), own.nbytes) == []
