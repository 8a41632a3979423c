"""Rows beside those of an earlier version: natively and by numpy as in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from embertide.kernels import native
from embertide.kernels.row_pairs import Values, compare_rows, count_bins, look_at_rows, zero_rows
from embertide.kernels.threads import set_threads

WIDTHS = (1, 2, 7, 16, 33, 64, 128, 200)
SPECIAL = np.array(
    [0, -0.0, 1e-45, -1e-30, 1e-20, 1, 3e19, -3e38, np.inf, -np.inf, np.nan], np.float32
)
ROUNDING = 1e-12
"""Of sums in float64."""


def look(values: Values) -> tuple[Values, Any]:
    norms, prints = np.empty(len(values), np.float32), np.empty(len(values), np.uint64)
    look_at_rows(values, norms, prints)
    return norms, prints


def wide(values: Values) -> np.ndarray[Any, np.dtype[np.float64]]:
    return values.astype(np.float64)


def rows_of(width: int, count: int = 3000, seed: int = 0) -> Values:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def with_special(width: int) -> Values:
    """Rows with each special value somewhere, and rows of it alone."""
    rows = rows_of(width, 4 * len(SPECIAL), 1)
    for at, value in enumerate(SPECIAL):
        rows[at, at % width] = value
        rows[len(SPECIAL) + at] = value
    return rows


def earlier_of(rows: Values) -> Values:
    """Most as they are; some moved little or much, some zero, some with other signs of zero."""
    earlier = rows.copy()
    earlier[::5] += np.float32(1e-4) * rows_of(rows.shape[1], len(earlier[::5]), 2)
    earlier[1::7] = rows_of(rows.shape[1], len(earlier[1::7]), 3)
    earlier[2::11] = 0
    earlier[3::13] = -0.0
    return earlier


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("width", WIDTHS)
def test_lengths_are_those_in_float64(width: int) -> None:
    with np.errstate(over="ignore"):
        for values in (rows_of(width), with_special(width)):
            right = np.linalg.norm(wide(values), axis=1).astype(np.float32)
            norms, _ = look(values)
            np.testing.assert_allclose(norms, right, rtol=2e-7)
            assert np.array_equal(norms == 0, (values == 0).all(axis=1))
            assert np.array_equal(zero_rows(values), norms == 0)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("width", WIDTHS)
def test_fingerprints_are_equal_where_all_bits_are(width: int) -> None:
    values = np.concatenate([rows_of(width), with_special(width), rows_of(width)[:100]])
    _, prints = look(values)
    _, by_bits = np.unique(values.view(np.uint32), axis=0, return_inverse=True)
    _, by_print = np.unique(prints, return_inverse=True)
    pairs = {*zip(by_bits.reshape(-1).tolist(), by_print.tolist(), strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@pytest.mark.parametrize("width", WIDTHS)
def test_fingerprints_are_the_same_without_native_kernels(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers with and without them exchange fingerprints."""
    values = np.concatenate([rows_of(width), with_special(width)])
    _, prints = look(values)
    monkeypatch.setattr(native, "lib", None)
    assert np.array_equal(look(values)[1], prints)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_compared_as_in_float64(width: int) -> None:
    ours = rows_of(width)
    places = np.sort(np.random.default_rng(4).choice(len(ours), 2500, replace=False))
    earlier = earlier_of(ours)[places]
    places[::17] = -1
    moves = compare_rows(ours, places, earlier)
    known = places >= 0
    new, old = ours[places], earlier
    same = known & (new.view(np.uint32) == old.view(np.uint32)).all(axis=1)
    assert np.array_equal(moves.same, same)
    assert np.array_equal(moves.changed, known & ~same)
    assert moves.earlier_zeros == int((old == 0).all(axis=1).sum())
    squares = np.square(wide(new) - wide(old)).sum(axis=1)
    np.testing.assert_allclose(
        moves.squares[known], np.where(same, 0, squares)[known], rtol=ROUNDING
    )
    a, b = np.linalg.norm(wide(new), axis=1), np.linalg.norm(wide(old), axis=1)
    with np.errstate(invalid="ignore"):
        right = np.where(b > 0, 1 - (wide(new) * wide(old)).sum(axis=1) / (a * b), 1)
    # 1 - cosine cancels here, by about a float64's rounding.
    expected = np.where(same, 0, right)[known]
    np.testing.assert_allclose(moves.distances[known], expected, rtol=ROUNDING, atol=1e-14)


@pytest.mark.usefixtures("kernels")
def test_special_values_are_compared() -> None:
    """Zero vectors, other signs of zero, NaN, infinities; values whose squares are no float32."""
    ours = np.zeros((8, 3), np.float32)
    earlier = np.zeros((8, 3), np.float32)
    ours[1], earlier[1] = 0, 1
    ours[2], earlier[2] = 0.0, -0.0
    ours[3], earlier[3] = np.nan, np.nan
    ours[4], earlier[4] = 1e-30, 2e-30
    ours[5], earlier[5] = 1e30, -1e30
    ours[6], earlier[6] = 1, np.inf
    ours[7], earlier[7] = 1, np.nan
    moves = compare_rows(ours, np.arange(8), earlier)
    assert moves.same.tolist() == [True, False, False, True, *[False] * 4]
    assert moves.changed.tolist() == [False, True, True, False, *[True] * 4]
    assert moves.earlier_zeros == 2
    assert moves.distances[:4].tolist() == [0, 1, 0, 0]
    # float32 has no squares of these.
    assert moves.distances[4] == pytest.approx(0, abs=1e-15)
    assert moves.squares[4] == pytest.approx(3e-60)
    assert moves.distances[5] == pytest.approx(2)
    assert moves.squares[5] == pytest.approx(1.2e61)
    assert np.isnan(moves.distances[6])
    assert moves.distances[7] == 1


@pytest.mark.usefixtures("kernels")
def test_values_are_counted_in_the_bins_that_they_are_in() -> None:
    edges = 10.0 ** np.arange(-12, 12, 0.05)
    generator = np.random.default_rng(5)
    values = np.concatenate([
        10 ** generator.uniform(-15, 15, 100_000),
        edges, np.nextafter(edges, 0), np.nextafter(edges, 1e300),
        [0, -0.0, -3, 5e-324, 1e-12, 1e300, np.inf, -np.inf, np.nan],
    ])  # fmt: skip
    counts = np.ones(len(edges) + 1, np.int64)
    count_bins(values, edges, counts)
    finite = values[np.isfinite(values)]
    bounds = [-np.inf, *edges, np.inf]
    right = [np.sum((finite >= low) & (finite < high)) for low, high in pairwise(bounds)]
    assert (counts - 1).tolist() == right
    count_bins(values[:0], edges, counts)
    assert counts.sum() == len(finite) + len(counts)


@pytest.mark.skipif(native.lib is None, reason=native.describe())
@pytest.mark.parametrize("edges", [[1.0], [0.0, 1.0], [2.0, 1.0], [1.0, np.nan]])
def test_edges_that_are_none_are_refused(edges: list[float]) -> None:
    with pytest.raises(ValueError, match="edges"):
        native.lib.count_bins(np.ones(3), np.array(edges), np.zeros(len(edges) + 1, np.int64))


@pytest.mark.usefixtures("kernels")
def test_column_slices_and_no_rows_are_taken() -> None:
    ours, earlier = rows_of(9), earlier_of(rows_of(9))
    places = np.arange(len(ours))
    whole = compare_rows(np.ascontiguousarray(ours[:, 2:7]), places, earlier[:, 2:7].copy())
    sliced = compare_rows(ours[:, 2:7], places, earlier[:, 2:7])
    assert np.array_equal(whole.states, sliced.states)
    assert np.array_equal(whole.distances, sliced.distances)
    none = compare_rows(ours, places[:0], earlier[:0])
    assert (len(none.states), none.earlier_zeros) == (0, 0)
    assert len(look(ours[:0])[0]) == 0


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("place", [-2, 4])
def test_a_place_outside_is_refused(place: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        compare_rows(rows_of(3, 4), np.array([0, place]), rows_of(3, 2))


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_threads_change_nothing() -> None:
    ours, places = rows_of(33, 20_000), np.arange(20_000)
    earlier = earlier_of(ours)
    set_threads(1)
    alone, looked = compare_rows(ours, places, earlier), look(ours)
    set_threads(3)
    try:
        shared = compare_rows(ours, places, earlier)
        assert np.array_equal(shared.distances, alone.distances)
        assert np.array_equal(look(ours)[0], looked[0])
        assert np.array_equal(look(ours)[1], looked[1])
    finally:
        set_threads(0)
