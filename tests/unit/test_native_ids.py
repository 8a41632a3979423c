"""Kernels of ids against plain dicts and sorts, natively and without."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels import native
from embertide.kernels.hashing import Words
from embertide.kernels.ids import (
    IdTable,
    group_words,
    hash_ids,
    invert_order,
    sort_words,
    take_strings,
)
from embertide.kernels.owners import place_in_order, place_locations, place_sequence, split_by_owner
from embertide.kernels.threads import set_threads

TEXTS = ["", "\0", "a", "é", "x" * 10_000, "12345678", "日本語" * 50]


@pytest.fixture(params=["native 1", "native 3", "fallback"], autouse=True, scope="module")
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "fallback":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "lib", None)
            yield
        return
    if native.lib is None:
        pytest.skip(native.describe())
    before = native.lib.threads()
    set_threads(int(request.param[-1]))
    yield
    set_threads(before)


def some_words(size: int, width: int, seed: int = 0) -> Words:
    """Different; among them many with an equal first word where there are two."""
    g = np.random.default_rng(seed)
    words = g.integers(0, 2**64, (size, width), np.uint64)
    if width == 2:
        words[: min(size // 2, 60), 0] = np.uint64(2**63 + 7)
    return words


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 40_000])
def test_words_of_pieces_are_sorted_and_found(size: int, width: int) -> None:
    words = some_words(size, width)
    pieces = [words[:0], words[: size // 3], words[size // 3 :]]
    found, order = sort_words(pieces, width)
    assert [tuple(word) for word in found.tolist()] == sorted(map(tuple, words.tolist()))
    assert order.dtype == np.uint32
    assert len(order) == (size if width == 2 else 0)
    if width == 2:
        assert np.array_equal(words[order], found)
    table = IdTable(found)
    for kind in (np.int32, np.int64):
        at = table.find_words(found, 5, np.empty(size, kind))
        assert at.dtype == kind
        assert np.array_equal(at, np.arange(size) + 5)
    others = found.copy()
    others[:, -1] ^= np.uint64(1)
    assert (table.find_words(others, 5, np.empty(size, np.int64)) == -1).all()
    low_and_high = np.array([[0] * width, [2**64 - 1] * width], np.uint64)
    assert table.find_words(low_and_high, 5, np.empty(2, np.int64)).tolist() == [-1, -1]


@pytest.mark.tier(2)
@given(st.lists(st.sampled_from(TEXTS) | st.text(max_size=12), unique=True), st.data())
def test_strings_are_found(names: list[str], data: st.DataObject) -> None:
    ids = pa.array(names, pa.large_string())
    words, order = sort_words([hash_ids(ids)], 2)
    place = {names[i]: at + 3 for at, i in enumerate(order.tolist())}
    asked = data.draw(st.lists(st.sampled_from(TEXTS) | st.text(max_size=12)))
    expected = [place.get(name, -1) for name in asked]
    table = IdTable(words)
    for kind in (pa.large_string(), pa.string()):
        assert table.find(pa.array(["skipped", *asked], kind)[1:], 3).tolist() == expected


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_many_ids_are_found_in_integers_of_a_kind(kind: type[np.int32] | type[np.int64]) -> None:
    g = np.random.default_rng(5)
    numbers = g.permutation(30_000)
    names = [f"{'x' * (i % 23)}{i}" for i in numbers.tolist()]
    asked = g.integers(0, 60_000, 20_011)
    for ids, wanted in (
        (numbers, asked),
        (
            pa.array(names, pa.large_string()),
            pa.array([f"{'x' * (i % 23)}{i}" for i in asked.tolist()], pa.large_string()),
        ),
    ):
        words, _ = sort_words([hash_ids(ids)], hash_ids(ids).shape[1])
        found = IdTable(words).find(wanted, 7, kind)
        assert found.dtype == kind
        assert np.array_equal(found < 0, asked >= 30_000)
        known = found >= 0
        assert np.array_equal(words[found[known] - 7], hash_ids(wanted)[known])


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("crowd", [1, 15, 16, 17, 254, 255, 256, 700])
def test_ids_are_found_within_and_after_a_crowd(crowd: int, width: int) -> None:
    """Crafted ids may have hashes that begin alike, more than a line of the directory counts."""
    words = some_words(5000, width, crowd)
    words[-crowd:, 0] = np.uint64(2**62) + 2 * np.arange(crowd, dtype=np.uint64)
    ordered, _ = sort_words([words], width)
    table = IdTable(ordered)
    assert np.array_equal(table.find_words(ordered, 0, np.empty(5000, np.int64)), np.arange(5000))
    for column in range(width):
        others = ordered.copy()
        others[:, column] ^= np.uint64(1)
        assert (table.find_words(others, 0, np.empty(5000, np.int64)) == -1).all()


@given(st.integers(0, 2000), st.integers(0, 2**32))
def test_an_order_is_inverted(size: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(size).astype(np.uint32)
    places = invert_order(order)
    assert places.dtype == np.int64
    assert np.array_equal(order[places], np.arange(size))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_integers_are_found(ids: list[int]) -> None:
    given_ids = np.array(ids, np.int64)
    words, _ = sort_words([hash_ids(given_ids)], 1)
    found = IdTable(words).find(np.append(given_ids, given_ids[:1] ^ 1), 0)
    assert np.array_equal(words[found[: len(ids)], 0], hash_ids(given_ids)[:, 0])


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("owners", [1, 2, 7])
@pytest.mark.parametrize("size", [0, 1, 60_000])
def test_groups_hold_each_word_once_by_owner(size: int, owners: int, width: int) -> None:
    g = np.random.default_rng(1)
    few = some_words(max(1, size // 5), width)
    words = few[(len(few) * g.random(size) ** 3).astype(int)]
    unique, position = np.zeros_like(words), np.full(size, -1, np.int32)
    counts = group_words(words, owners, unique, position, np.empty(2 * size, np.uint32))
    unique = unique[: sum(counts)]
    assert np.array_equal(unique[position], words)
    assert len(unique) == sum(counts) == len({tuple(word) for word in words.tolist()})
    owner = [(int(word) >> 32) * owners >> 32 for word in unique[:, 0]]
    assert owner == [i for i, count in enumerate(counts) for _ in range(count)]


@given(st.lists(st.sampled_from(TEXTS) | st.text(max_size=12)), st.data())
def test_strings_are_taken_from_pieces(names: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(names)))
    pieces = [
        pa.array(part, pa.large_string()) for part in (["skipped", *names[:cut]], names[cut:])
    ]
    pieces = [pieces[0][1:], pieces[1], pieces[1][:0]]
    rows = data.draw(st.lists(st.integers(0, len(names) - 1))) if names else []
    taken = take_strings(pieces, np.array(rows, np.uint32))
    taken.validate(full=True)
    assert taken.to_pylist() == [names[row] for row in rows]


def test_many_strings_are_taken_from_uneven_pieces() -> None:
    g = np.random.default_rng(3)
    names = ["x" * (i % 29) + str(i) for i in range(30_000)]
    cuts = [0, 0, 3, 3, 20_000, 20_001, 30_000, 30_000]
    pieces = [pa.array(names[a:b], pa.large_string()) for a, b in pairwise(cuts)]
    order = g.integers(0, len(names), 25_001).astype(np.uint32)
    taken = take_strings(pieces, order)
    taken.validate(full=True)
    assert taken.to_pylist() == [names[row] for row in order.tolist()]


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("bounds", [(0, 100), (0, 1, 1, 60, 100), (0, 50, 100)])
@pytest.mark.parametrize("size", [0, 1, 50_000])
def test_nodes_are_split_by_owner(size: int, bounds: tuple[int, ...], kind: torch.dtype) -> None:
    nodes = torch.randint(100, (size,), generator=torch.Generator().manual_seed(2)).to(kind)
    order, counts, rows = split_by_owner(nodes, bounds)
    owner = [max(i for i in range(len(bounds) - 1) if bounds[i] <= n) for n in nodes.tolist()]
    assert order.tolist() == sorted(range(size), key=owner.__getitem__)
    assert counts == [owner.count(i) for i in range(len(bounds) - 1)]
    assert rows.tolist() == [int(nodes[i]) - bounds[owner[i]] for i in order.tolist()]


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_locations_know_rows_with_none_and_with_several(kind: torch.dtype) -> None:
    locations = torch.full((5, 2), -1, dtype=kind)
    place_locations(locations, torch.tensor([[0, 7], [3, 8], [3, 9]], dtype=kind), 0)
    place_locations(locations, torch.tensor([[0, 1], [4, 2]], dtype=kind), 6)
    place_locations(locations, torch.empty(0, 2, dtype=kind), 7)
    assert locations[:, 0].tolist() == [-2, -1, -1, -2, 6]
    assert locations[4].tolist() == [6, 2]


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_nodes_are_placed_in_their_order(kind: torch.dtype) -> None:
    locations = torch.full((4000, 2), -1, dtype=kind)
    nodes = torch.randperm(3999, generator=torch.Generator().manual_seed(1))
    place_in_order(locations, torch.cat([nodes, nodes[:1]]), 3)
    rows = torch.arange(len(nodes))
    assert locations[nodes[1:]].tolist() == [[3, i] for i in rows[1:].tolist()]
    assert locations[nodes[0], 0] == -2
    assert locations[3999, 0] == -1


def test_wrong_arrays_are_refused() -> None:
    if native.lib is None:
        return
    with pytest.raises(ValueError, match="not ascending"):
        IdTable(np.array([[1], [9], [3]], np.uint64))
    with pytest.raises(ValueError, match="outside the rows"):
        take_strings([pa.array(["a"], pa.large_string())], np.array([1], np.uint32))
    with pytest.raises(ValueError, match="outside the places"):
        invert_order(np.array([0, 2], np.uint32))
    with pytest.raises(ValueError, match="outside all ranges"):
        split_by_owner(torch.tensor([4]), (0, 2, 4))
    for nodes in ([0, 4], [0, -1], [-(2**63)]):
        with pytest.raises(ValueError, match="outside the rows"):
            place_in_order(torch.full((4, 2), -1), torch.tensor(nodes), 0)
    with pytest.raises(ValueError, match="outside the text"):
        native.lib.hash_strings(np.array([0, 9]), np.zeros(8, np.uint8), np.empty(2, np.uint64))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_locations_of_a_sequence(kind: torch.dtype) -> None:
    rows = 600_000
    locations = torch.full((rows, 2), 7, dtype=kind)
    nodes = torch.arange(rows)
    assert place_sequence(locations, nodes, 3)
    assert (locations[:, 0] == 3).all()
    assert torch.equal(locations[:, 1].long(), nodes)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("nodes", [[1, 0, 2], [0, 1], [0, 1, 2, 3], [0, 1, 1], [0, 1, -2]])
def test_other_nodes_are_no_sequence(nodes: list[int]) -> None:
    assert not place_sequence(torch.full((3, 2), -1), torch.tensor(nodes), 0)
