"""The nearest embeddings, against sorting everything at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.errors import InputError
from embertide.versions.neighbors import Batches, Metric, Neighbor, nearest

WORDS = ["apple", "apples", "maple", "grape", "orange", "melon", "lemon"]


def in_batches(ids: npt.NDArray[np.generic] | pa.Array, values: object, size: int) -> Batches:
    array = np.asarray(values, np.float32)

    def batches() -> Iterable[tuple[object, npt.NDArray[np.float32]]]:
        for start in range(0, len(array), size):
            yield ids[start : start + size], array[start : start + size]

    return batches


def brute_force(values: npt.NDArray[np.float32], row: int, k: int, metric: str) -> list[int]:
    x = values.astype(np.float64)
    closeness = -np.sqrt(((x - x[row]) ** 2).sum(1)) if metric == "l2" else x @ x[row]
    if metric == "cosine":
        closeness = closeness / np.linalg.norm(x, axis=1) / np.linalg.norm(x[row])
    order = [int(i) for i in np.argsort(-closeness, kind="stable") if i != row]
    return order[:k]


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_agrees_with_sorting_everything(metric: Metric, size: int) -> None:
    values = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    found = nearest(in_batches(np.arange(200), values, size), ["3", "199"], 10, metric)
    for name, neighbors in found.items():
        assert [n.id for n in neighbors] == brute_force(values, int(name), 10, metric)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 30), st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 99)
)
def test_batches_do_not_matter(rows: int, width: int, k: int, size: int, seed: int) -> None:
    # Few distinct values, so that there are many equal scores.
    values = np.random.default_rng(seed).integers(-1, 2, (rows, width)).astype(np.float32)
    whole = nearest(in_batches(np.arange(rows), values, rows), ["0"], k, "dot")
    assert nearest(in_batches(np.arange(rows), values, size), ["0"], k, "dot") == whole
    assert len(whole["0"]) == min(k, rows - 1)


def test_equal_scores_keep_the_order_of_rows() -> None:
    values = [[1, 0], [2, 0], [2, 0], [1, 0], [2, 0]]
    found = nearest(in_batches(np.arange(5), values, 2), ["0"], 3, "dot")["0"]
    assert found == [Neighbor(1, 2.0), Neighbor(2, 2.0), Neighbor(4, 2.0)]


def test_scores_mean_what_the_metric_says() -> None:
    batches = in_batches(np.array([5, 6, 7]), [[3, 4], [6, 8], [0, 0]], 2)
    assert nearest(batches, ["5"], 2, "cosine")["5"] == [Neighbor(6, 1.0), Neighbor(7, 0.0)]
    assert nearest(batches, ["5"], 2, "dot")["5"] == [Neighbor(6, 50.0), Neighbor(7, 0.0)]
    assert nearest(batches, ["5"], 2, "l2")["5"] == [Neighbor(6, 5.0), Neighbor(7, 5.0)]


def test_string_ids_and_repeated_questions() -> None:
    batches = in_batches(pa.array(WORDS, pa.large_string()), np.eye(7) + 0.1, 3)
    found = nearest(batches, ["melon", "apple", "melon"], 2, "dot")
    assert list(found) == ["melon", "apple"]
    assert [n.id for n in found["apple"]] == ["apples", "maple"]


def test_half_precision_does_not_overflow() -> None:
    values = np.full((3, 4), 60000, np.float16)

    def batches() -> Iterable[tuple[object, npt.NDArray[np.float16]]]:
        yield np.arange(3), values

    square = 4 * float(np.float16(60000)) ** 2
    assert [n.score for n in nearest(batches, ["0"], 2, "dot")["0"]] == [square, square]


def test_unknown_string_id_gets_the_nearest_spellings() -> None:
    batches = in_batches(pa.array(WORDS), np.eye(7), 2)
    with pytest.raises(InputError) as caught:
        nearest(batches, ["aple", "Melon", "apple", "zzz"], 2, source="version 7")
    lines = str(caught.value).split("\n")
    assert lines[0] == (
        "no id 'aple' in version 7, which has 7 rows; did you mean apple, maple, apples?"
    )
    assert lines[1].endswith("did you mean melon?")
    assert lines[2] == "no id 'zzz' in version 7, which has 7 rows"
    assert len(lines) == 3


def test_unknown_number_gets_the_range() -> None:
    batches = in_batches(np.array([4, -7, 90]), np.eye(3), 2)
    with pytest.raises(InputError, match=r"no id '5', which has 3 rows with ids from -7 to 90"):
        nearest(batches, ["5"], 1)
    with pytest.raises(InputError, match=r"no id 'five', .*; its ids are whole numbers"):
        nearest(batches, ["five"], 1)
    with pytest.raises(InputError, match="no id '99999999999999999999'"):
        nearest(batches, ["9" * 20], 1)
