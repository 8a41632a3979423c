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
    found = nearest(in_batches(np.arange(200), values, size), ["3", "199"], 10, metric).found
    for name, neighbors in found.items():
        assert [n.id for n in neighbors] == brute_force(values, int(name), 10, metric)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 30), st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 99)
)
def test_batches_do_not_matter(rows: int, width: int, k: int, size: int, seed: int) -> None:
    # Few distinct values, so that there are many equal scores.
    values = np.random.default_rng(seed).integers(-1, 2, (rows, width)).astype(np.float32)
    whole = nearest(in_batches(np.arange(rows), values, rows), ["0"], k, "dot").found
    assert nearest(in_batches(np.arange(rows), values, size), ["0"], k, "dot").found == whole
    assert len(whole["0"]) == min(k, rows - 1)


def test_equal_scores_keep_the_order_of_rows() -> None:
    values = [[1, 0], [2, 0], [2, 0], [1, 0], [2, 0]]
    found = nearest(in_batches(np.arange(5), values, 2), ["0"], 3, "dot").found["0"]
    assert found == [Neighbor(1, 2.0), Neighbor(2, 2.0), Neighbor(4, 2.0)]


def test_scores_mean_what_the_metric_says() -> None:
    batches = in_batches(np.array([5, 6, 7]), [[3, 4], [6, 8], [0, 0]], 2)
    assert nearest(batches, ["5"], 2, "cosine").found["5"] == [Neighbor(6, 1.0), Neighbor(7, 0.0)]
    assert nearest(batches, ["5"], 2, "dot").found["5"] == [Neighbor(6, 50.0), Neighbor(7, 0.0)]
    assert nearest(batches, ["5"], 2, "l2").found["5"] == [Neighbor(6, 5.0), Neighbor(7, 5.0)]


def test_string_ids_and_repeated_questions() -> None:
    batches = in_batches(pa.array(WORDS, pa.large_string()), np.eye(7) + 0.1, 3)
    found = nearest(batches, ["melon", "apple", "melon"], 2, "dot").found
    assert list(found) == ["melon", "apple"]
    assert [n.id for n in found["apple"]] == ["apples", "maple"]


def test_half_precision_does_not_overflow() -> None:
    values = np.full((3, 4), 60000, np.float16)

    def batches() -> Iterable[tuple[object, npt.NDArray[np.float16]]]:
        yield np.arange(3), values

    square = 4 * float(np.float16(60000)) ** 2
    assert [n.score for n in nearest(batches, ["0"], 2, "dot").found["0"]] == [square, square]


def test_unknown_string_ids_get_the_nearest_spellings_and_the_others_their_answers() -> None:
    batches = in_batches(pa.array(WORDS), np.eye(7), 2)
    answer = nearest(batches, ["aple", "Melon", "apple", "zzz"], 2, source="version 7")
    assert list(answer.found) == ["apple"]
    assert len(answer.found["apple"]) == 2
    assert list(answer.unknown) == ["aple", "Melon", "zzz"]
    assert answer.unknown["aple"] == (
        "no id 'aple' in version 7, which has 7 rows; did you mean apple, maple, apples?"
    )
    assert answer.unknown["Melon"].endswith("did you mean melon?")
    assert answer.unknown["zzz"] == "no id 'zzz' in version 7, which has 7 rows"


def test_unknown_number_gets_the_range() -> None:
    batches = in_batches(np.array([4, -7, 90]), np.eye(3), 2)
    unknown = nearest(batches, ["5", "five", "9" * 20], 1).unknown
    assert unknown["5"] == "no id '5', which has 3 rows with ids from -7 to 90"
    assert unknown["five"].endswith("; its ids are whole numbers")
    assert unknown["9" * 20].startswith("no id '99999999999999999999'")


TYPED = ["item:1", "user:1", "item:2", "user:2", "item:3"]
TYPED_VALUES = [[1, 0], [1, 0], [0.9, 0.1], [0.5, 0.5], [0, 1]]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_prefix_restricts_what_is_compared_with(size: int) -> None:
    batches = in_batches(pa.array(TYPED), TYPED_VALUES, size)
    found = nearest(batches, ["1", "item:3", "user:2"], 9, prefix="item:").found
    assert list(found) == ["item:1", "item:3", "user:2"]
    assert [n.id for n in found["item:1"]] == ["item:2", "item:3"]
    assert [n.id for n in found["item:3"]] == ["item:2", "item:1"]
    assert {n.id for n in found["user:2"]} == {"item:1", "item:2", "item:3"}


def test_an_id_as_written_wins_over_one_with_the_prefix() -> None:
    batches = in_batches(pa.array(["1", "item:1", "item:2"]), np.eye(3), 2)
    assert list(nearest(batches, ["1", "2"], 1, prefix="item:").found) == ["1", "item:2"]


def test_the_same_id_with_and_without_its_prefix_is_one_question() -> None:
    batches = in_batches(pa.array(TYPED), TYPED_VALUES, 2)
    assert list(nearest(batches, ["1", "item:1"], 1, prefix="item:").found) == ["item:1"]


def test_a_prefix_of_nothing_finds_nothing() -> None:
    batches = in_batches(pa.array(TYPED), TYPED_VALUES, 2)
    assert nearest(batches, ["user:1"], 2, prefix="shop:").found == {"user:1": []}
    missing = nearest(batches, ["9"], 2, prefix="item:").unknown
    assert missing == {
        "9": "no id 'item:9', which has 5 rows; did you mean item:1, item:2, item:3?"
    }


def test_numbers_have_no_prefix() -> None:
    with pytest.raises(InputError, match="prefix 'item:' needs string ids"):
        nearest(in_batches(np.arange(3), np.eye(3), 2), ["1"], 1, prefix="item:")


def test_ids_are_whole_numbers_as_inputs_have_them() -> None:
    batches = in_batches(np.arange(20), np.eye(20), 7)
    assert list(nearest(batches, [" 7"], 1, "dot").found) == [" 7"]
    for name in ("1_0", "--7", "²", "99999999999999999999"):
        answer = nearest(batches, [name], 1, "dot")
        assert not answer.found
        assert answer.unknown[name].endswith("its ids are whole numbers")
