"""The nearest embeddings, against sorting everything at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.errors import InputError
from embertide.io.versions.neighbors import Batches, Metric, nearest
from tests.support.expected import Expected, inputs


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


def test_half_precision_does_not_overflow() -> None:
    values = np.full((3, 4), 60000, np.float16)

    def batches() -> Iterable[tuple[object, npt.NDArray[np.float16]]]:
        yield np.arange(3), values

    square = 4 * float(np.float16(60000)) ** 2
    assert [n.score for n in nearest(batches, ["0"], 2, "dot").found["0"]] == [square, square]


CASES = inputs("neighbors.txt")


def answer(case: dict[str, Any], size: int) -> str:
    """The neighbours of each id that is found, and what is said of others."""
    given = dict(case)
    ids = pa.array(given.pop("ids"))
    batches = in_batches(ids if pa.types.is_string(ids.type) else ids.to_numpy(),
                         given.pop("values"), size)  # fmt: skip
    try:
        found = nearest(batches, given.pop("asked"), given.pop("k", 9), **given)
    except InputError as error:
        return str(error)
    lines = [
        f"{name}: {[(n.id, round(n.score, 6)) for n in of]}" for name, of in found.found.items()
    ]
    return "\n".join([*lines, *found.unknown.values()])


@pytest.mark.parametrize("name", CASES)
def test_answers(name: str, expected: Expected) -> None:
    case = yaml.safe_load(CASES[name])
    found = {answer(case, size) for size in (1, 2, 1000)}
    assert len(found) == 1
    expected.check("neighbors.txt", name, f"{CASES[name]}--\n{found.pop()}", CASES)
