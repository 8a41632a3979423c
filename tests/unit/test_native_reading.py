"""What readers do to a batch: rows put in place, ids narrowed and counted."""

from __future__ import annotations

import numpy as np
import pytest

from embertide.kernels import reading
from embertide.kernels.pages import Pages

pytestmark = pytest.mark.usefixtures("kernels")


@pytest.mark.parametrize("width", [1, 3, 17, 128, 129])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_rows_are_put_in_place(width: int, rows: int) -> None:
    random = np.random.default_rng(width)
    values = random.normal(size=(rows, width)).astype(np.float32)
    order = random.permutation(rows)
    to = np.empty((rows + 1, width), np.float32)
    to[rows] = 7
    assert reading.place_rows(to, values, order)
    assert np.array_equal(to[order], values)
    assert np.all(to[rows] == 7)
    assert reading.place_rows(to, values)
    assert np.array_equal(to[:rows], values)


def test_a_batch_may_be_read_only_and_a_column_slice() -> None:
    wide = np.arange(60, dtype=np.float32).reshape(6, 10)
    wide.flags.writeable = False
    to = np.zeros((6, 4), np.float32)
    order = np.array([5, 0, 1, 2, 3, 4])
    order.flags.writeable = False
    assert reading.place_rows(to, wide[:, 3:7], order)
    assert np.array_equal(to[order], wide[:, 3:7])


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [(0, 0), (63, 16), (99, 32)])
def test_values_that_are_not_finite_are_noticed(bad: float, at: tuple[int, int]) -> None:
    values = np.full((100, 33), np.finfo(np.float32).max)
    values[5] = -np.finfo(np.float32).tiny / 2
    to = np.empty_like(values)
    assert reading.place_rows(to, values)
    values[at] = bad
    assert not reading.place_rows(to, values)
    assert np.array_equal(to, values, equal_nan=True)


@pytest.mark.parametrize("row", [3, 1 << 40])
def test_a_row_outside_is_refused(row: int) -> None:
    with pytest.raises((ValueError, IndexError), match=r"out of bounds|outside the rows"):
        reading.place_rows(
            np.empty((3, 2), np.float32), np.zeros((1, 2), np.float32), np.array([row])
        )


@pytest.mark.parametrize("count", [0, 1, 77, 100_000])
def test_ids_are_narrowed_and_counted(count: int) -> None:
    ids = np.random.default_rng(count).integers(0, 2**31 - 1, count)
    ids.flags.writeable = False
    narrow = reading.narrow_ids(ids, 2**31 - 1, Pages())
    assert narrow.dtype == np.int32
    assert np.array_equal(narrow, ids)
    assert reading.narrow_ids(ids, 2**31, Pages()) is ids
    assert reading.narrow_ids(narrow, 2**31 - 1, Pages()) is narrow
    for one in (ids, narrow):
        counts = np.ones(1 << 16, np.int64)
        reading.count_ids(counts, one, 15)
        assert np.array_equal(counts, 1 + np.bincount(ids >> 15, minlength=1 << 16))


def test_ids_beyond_the_last_bucket_are_refused() -> None:
    with pytest.raises(ValueError, match=r"beyond the last bucket|could not be broadcast"):
        reading.count_ids(np.zeros(4, np.int64), np.array([4 << 3]), 3)
