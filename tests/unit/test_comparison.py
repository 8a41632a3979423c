"""Two versions compared by the ids of their rows, against a loop over all ids."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from embertide.errors import ObjectMissing, OutputError
from embertide.facts.telemetry.comparison import Comparison
from embertide.io.compare.diff import compare_versions
from embertide.io.compare.histogram import Histogram
from embertide.io.compare.rows import (
    KEPT_PRINTS,
    KeyedRows,
    count_duplicates,
    find_duplicates,
    look_at,
)
from embertide.io.compare.sample import Pairs
from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.keys import KeyRange, from_hex, key_at, key_words, ranges_from, to_hex
from tests.support.compared import (
    Rows,
    in_order,
    publish_rows,
    random_rows,
    slow_cosines,
    slow_counts,
    slow_overlap,
)
from tests.support.versions import CURRENT, NEXT, OLD, path_of

WIDTH = 6


def changed(rows: Rows, seed: int, *, drop: int = 20, add: int = 30, move: int = 40) -> Rows:
    """Some rows gone, some new, some with another vector."""
    generator = np.random.default_rng(seed)
    width = len(next(iter(rows.values())))
    names = list(rows)
    kept = {name: rows[name] for name in names[drop:]}
    noise = generator.normal(size=(move, width)).astype(np.float32) / 10
    kept |= {name: rows[name] + noise[at] for at, name in enumerate(names[drop : drop + move])}
    text = isinstance(names[0], str)
    fresh = [f"new/{at}" if text else 10**6 + at for at in range(add)]
    return kept | {name: generator.normal(size=width).astype(np.float32) for name in fresh}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["dense", "int64", "string"])
def test_counts_are_those_of_a_loop_over_all_ids(
    storage: Storage, output: str, kind: str, format: str
) -> None:
    old = random_rows(300, WIDTH, 1, text=kind == "string")
    new = changed(old, 2)
    publish_rows(storage, output, OLD, old, kind=kind, format=format, cuts=(0.1, 0.5, 0.5, 0.9))
    publish_rows(storage, output, CURRENT, new, kind=kind, format=format, cuts=(0.25, 0.7))
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert {name: getattr(found, name) for name in slow_counts(old, new)} == slow_counts(old, new)
    assert (found.rows, found.previous_rows) == (len(new), len(old))


def test_cosines_are_those_in_float64(storage: Storage, output: str) -> None:
    old = random_rows(2000, WIDTH, 3)
    new = changed(old, 4, move=1980)
    publish_rows(storage, output, OLD, old)
    publish_rows(storage, output, CURRENT, new)
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    right = 1 - slow_cosines(old, new)
    for share in (1, 5, 50):
        cosine = found.cosine(f"{share}%")
        assert cosine is not None
        assert 1 - cosine == pytest.approx(np.quantile(right, 1 - share / 100), rel=0.07)


def test_a_tiny_move_is_seen_that_a_float32_cosine_rounds_to_1(
    storage: Storage, output: str
) -> None:
    old = random_rows(100, WIDTH, 5)
    new = {name: row * np.float32(1 + 2e-6) + np.float32(1e-5) for name, row in old.items()}
    publish_rows(storage, output, OLD, old)
    publish_rows(storage, output, CURRENT, new)
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert found.moved is not None
    right = np.median(1 - slow_cosines(old, new))
    assert found.moved.quantiles["50%"] == pytest.approx(right, rel=0.1)
    assert found.changed_rows == 100


def test_neighbours_kept_are_those_of_a_search_of_all_pairs(storage: Storage, output: str) -> None:
    old = random_rows(200, WIDTH, 6)
    new = changed(old, 7, move=150)
    publish_rows(storage, output, OLD, old)
    publish_rows(storage, output, CURRENT, new)
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert found.overlap == pytest.approx(slow_overlap(old, new), abs=1e-9)
    assert found.sample_rows == 180


def test_a_rotation_is_explained_and_noise_is_not() -> None:
    generator = np.random.default_rng(8)
    old = generator.normal(size=(500, WIDTH)).astype(np.float32)
    rotation, _ = np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)))
    draws = np.arange(500, dtype=np.uint64)
    turned = Pairs(draws, (3 * old @ rotation).astype(np.float32), old)
    assert turned.residual() == pytest.approx(0, abs=1e-6)
    assert turned.overlap() == pytest.approx(1, abs=0.01)
    other = Pairs(draws, generator.normal(size=(500, WIDTH)).astype(np.float32), old)
    residual = other.residual()
    assert residual is not None
    assert residual > 0.9


def test_another_model_has_no_cosines_but_neighbours(storage: Storage, output: str) -> None:
    old = random_rows(100, WIDTH, 9)
    new = {name: -row for name, row in old.items()}
    publish_rows(storage, output, OLD, old)
    publish_rows(storage, output, CURRENT, new, model={"digest": "another"})
    found = compare_versions(storage, output, OLD, CURRENT)
    assert not found.same_model
    assert found.types[0].moved is None
    assert found.types[0].overlap == 1
    assert found.types[0].residual == pytest.approx(0, abs=1e-6)


def test_another_dimension_has_neighbours_and_no_unchanged_rows(
    storage: Storage, output: str
) -> None:
    old = random_rows(100, WIDTH, 10)
    new = {name: np.append(row, np.float32(0)) for name, row in old.items()}
    publish_rows(storage, output, OLD, old)
    publish_rows(storage, output, CURRENT, new)
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert (found.dim, found.previous_dim) == (WIDTH + 1, WIDTH)
    assert (found.changed_rows, found.unchanged_rows, found.moved) == (100, 0, None)
    assert found.overlap == 1


def test_ids_of_another_kind_have_no_row_in_common(storage: Storage, output: str) -> None:
    publish_rows(storage, output, OLD, random_rows(50, WIDTH, 11), kind="int64")
    publish_rows(storage, output, CURRENT, random_rows(60, WIDTH, 12, text=True), kind="string")
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert (found.new_rows, found.removed_rows, found.changed_rows) == (60, 50, 0)


def test_float16_is_compared_as_it_is_published(storage: Storage, output: str) -> None:
    old = random_rows(100, WIDTH, 13)
    publish_rows(storage, output, OLD, old, dtype="float32")
    publish_rows(storage, output, CURRENT, old, dtype="float16")
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert (found.changed_rows, found.unchanged_rows) == (0, 100)


def test_zero_and_duplicate_vectors_are_counted(storage: Storage, output: str) -> None:
    rows = random_rows(100, WIDTH, 14)
    names = list(rows)
    rows |= {name: np.zeros(WIDTH, np.float32) for name in names[:10]}
    rows |= dict.fromkeys(names[21:24], rows[names[20]])
    tiny = np.full(WIDTH, 1e-30, np.float32)
    publish_rows(storage, output, OLD, rows)
    publish_rows(storage, output, CURRENT, rows | {names[0]: tiny})
    (found,) = compare_versions(storage, output, OLD, CURRENT).types
    assert (found.zero_rows, found.previous_zero_rows) == (9, 10)
    assert found.duplicate_rows == 4
    assert (found.changed_rows, found.unchanged_rows) == (1, 99)


def test_duplicates_of_many_rows_are_estimated_well() -> None:
    generator = np.random.default_rng(15)
    total = 4 * KEPT_PRINTS
    values = generator.normal(size=(total, 2)).astype(np.float32)
    values[: total // 4] = values[total // 4 : total // 2]
    parts = [values[first::2] for first in (0, 1)]
    found = [find_duplicates(look_at(keyed(part), 2), total) for part in parts]
    assert count_duplicates(found, total) == pytest.approx(total / 2, rel=0.02)
    alike = np.ones((total, 2), np.float32)
    same = [find_duplicates(look_at(keyed(part), 2), total) for part in (alike[::2], alike[1::2])]
    assert count_duplicates(same, total) == total


def keyed(values: Any) -> KeyedRows:
    ids = np.arange(len(values))
    return KeyedRows.of(ids, "dense", values.shape[1], lambda first, last: values[first:last])


def test_quantiles_of_a_histogram_are_near_those_of_the_values() -> None:
    values = np.random.default_rng(16).lognormal(-3, 2, 100_000)
    histogram = Histogram()
    histogram.add(values[:50_000])
    other = Histogram()
    other.add(np.append(values[50_000:], [np.nan, np.inf]))
    histogram.merge(other)
    for share in (1, 5, 50, 95, 99):
        right = np.quantile(values, share / 100)
        assert histogram.describe().quantiles[f"{share}%"] == pytest.approx(right, rel=0.07)
    assert sum(histogram.describe().counts) == 100_000


@pytest.mark.parametrize("kind", ["dense", "int64", "string"])
def test_ranges_part_all_keys(kind: str) -> None:
    ids, _ = _ordered(kind)
    words = key_words(ids, kind)
    starts = [key_at(words, row) for row in (10, 25, 40)]
    ranges = ranges_from([None, starts[0], starts[1], None, starts[2]])
    masks = [keys.mask(words) for keys in ranges]
    assert [int(mask.sum()) for mask in masks] == [0, 25, 15, 0, 60]
    assert all(from_hex(to_hex(start)) == start for start in starts)
    assert sorted(map(to_hex, starts)) == list(map(to_hex, starts))
    assert KeyRange(*starts[:2]).covers(starts[0], starts[0])
    assert not KeyRange(*starts[:2]).covers(starts[0], starts[1])


def _ordered(kind: str) -> Any:
    return in_order(random_rows(100, 2, 17, text=kind == "string"), kind)


def test_edges_are_compared_by_type(storage: Storage, output: str) -> None:
    rows = random_rows(20, WIDTH, 18)
    publish_rows(storage, output, OLD, rows, read={"edges": {"a:x:a": 10, "a:y:a": 5}})
    publish_rows(storage, output, CURRENT, rows, read={"edges": {"a:x:a": 12, "a:z:a": 7}})
    found = compare_versions(storage, output, OLD, CURRENT).edges
    assert {edges.name: (edges.rows, edges.previous) for edges in found} == {
        "a:x:a": (12, 10),
        "a:z:a": (7, None),
        "a:y:a": (0, 5),
    }


def test_a_version_without_ranges_says_that_it_cannot_be_compared(
    storage: Storage, output: str
) -> None:
    rows = random_rows(20, WIDTH, 19)
    publish_rows(storage, output, OLD, rows, keys=False)
    publish_rows(storage, output, CURRENT, rows)
    with pytest.raises(OutputError, match=f"{OLD} cannot be compared: .* ranges of ids"):
        compare_versions(storage, output, OLD, CURRENT)
    with pytest.raises(ObjectMissing, match=NEXT):
        compare_versions(storage, output, NEXT, CURRENT)


def test_rows_out_of_order_are_no_comparison(storage: Storage, output: str) -> None:
    """Wrong ranges of a manifest must not make rows look removed."""
    rows = random_rows(50, WIDTH, 20)
    publish_rows(storage, output, OLD, rows)
    path = path_of(output, f"versions/{OLD}/_manifest.json")
    manifest = json.loads(path.read_text())
    manifest["parts"][0]["last_key"] = manifest["parts"][0]["first_key"]
    path.write_text(json.dumps(manifest))
    publish_rows(storage, output, CURRENT, rows, cuts=(0.1,))
    found = compare_versions(storage, output, OLD, CURRENT)
    assert found.state == "failed"
    assert re.search(r"parts have \d+ rows .* its manifest has 50", found.why)
    assert found.types[0].previous_rows is None


def test_a_damaged_part_is_named(storage: Storage, output: str) -> None:
    rows = random_rows(50, WIDTH, 21)
    publish_rows(storage, output, OLD, rows)
    publish_rows(storage, output, CURRENT, rows)
    path = path_of(output, f"versions/{OLD}/part-00001.parquet")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(OutputError, match=r"part-00001\.parquet .* damaged"):
        compare_versions(storage, output, OLD, CURRENT)


def test_a_comparison_survives_json(storage: Storage, output: str) -> None:
    publish_rows(storage, output, OLD, random_rows(50, WIDTH, 22))
    publish_rows(storage, output, CURRENT, random_rows(50, WIDTH, 23))
    found = compare_versions(storage, output, OLD, CURRENT)
    assert Comparison.from_json(found.to_json()) == found
