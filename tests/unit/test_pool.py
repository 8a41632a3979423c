"""Splits read by several threads: in order, bounded, and errors in their place."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from embertide.io.readers.pool import (
    map_splits,
    read_ahead,
    readers,
    remote_bytes_arriving,
    remote_bytes_held,
)
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import ObjectInfo

MIB = 1 << 20


def numbers(first: int, count: int, slow: float = 0.0) -> Iterator[int]:
    for number in range(first, first + count):
        time.sleep(slow)
        yield number


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_the_order_of_the_splits(threads: int) -> None:
    def act(split: int) -> int:
        time.sleep(0.01 * (3 - split))
        return split * 10

    assert map_splits([0, 1, 2, 3], act, threads) == [0, 10, 20, 30]
    assert map_splits([], act, threads) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_error_in_the_order_of_splits_is_raised(threads: int) -> None:
    begun: list[int] = []

    def act(split: int) -> None:
        begun.append(split)
        if split == 1:
            time.sleep(0.1)
            raise KeyError("slow")
        if split == 2:
            raise ValueError("quick")
        time.sleep(0.05)

    with pytest.raises(KeyError):
        map_splits(list(range(2000)), act, threads)
    assert len(begun) < 100


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("ahead", [0, 3, 1000])
def test_items_come_source_after_source(threads: int, ahead: int) -> None:
    sources = [numbers(0, 5, 0.002), numbers(5, 0), numbers(5, 7), numbers(12, 1)]
    items = read_ahead(sources, threads, lambda _item: 1, ahead)
    assert list(items) == list(range(13))
    assert list(read_ahead([], threads, lambda _item: 1)) == []


def test_no_more_is_held_than_allowed() -> None:
    made, taken, most = 0, 0, 0

    def source() -> Iterator[int]:
        nonlocal made, most
        for _ in range(50):
            made += 1
            most = max(most, made - taken)
            yield 10

    for _ in read_ahead([source() for _ in range(4)], 3, lambda item: item, 100):
        time.sleep(0.001)
        taken += 1
    assert taken == 200
    # 100 bytes, one item in each thread's hands, and one more that each may have put at once.
    assert most <= 10 + 2 * 3 + 1


def test_an_error_comes_in_its_place_and_threads_end() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    items = read_ahead([numbers(0, 1, 0.05), broken(), numbers(2, 1000)], 2, lambda _item: 1, 10)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(OSError, match="gone"):
        next(items)
    assert not [one for one in threading.enumerate() if one.name == "reader"]


def test_closing_ends_the_threads() -> None:
    items = read_ahead([numbers(0, 10**6), numbers(0, 10**6)], 2, lambda _item: 1, 10)
    assert next(items) == 0
    items.close()
    assert not [one for one in threading.enumerate() if one.name == "reader"]


def splits(uri: str, count: int, size: int) -> list[Split]:
    return [Split.of(ObjectInfo(uri, size, "tag"), 0, 1, size) for _ in range(count)]


@pytest.mark.parametrize(
    ("uri", "size", "threads", "expected"),
    [
        ("file:///x", MIB, 2, 2),
        ("s3://shop/x", MIB, 2, 8),
        ("s3://shop/x", 16 * MIB, 2, 4),
        ("s3://shop/x", 900 * MIB, 2, 2),
        ("s3://shop/x", MIB, 16, 16),
        ("s3://shop/x", 0, 1, 8),
    ],
)
def test_more_splits_of_a_store_that_is_far_away_are_read_at_once(
    uri: str, size: int, threads: int, expected: int
) -> None:
    some = splits(uri, 20, size)
    assert readers(some, threads) == expected
    # What they hold is planned, of as many splits as a worker has: a split's ranges but the last.
    ranges = {16 * MIB: 12 * MIB, 900 * MIB: 24 * MIB}.get(size, size)
    each = 0 if uri.startswith("file") else ranges
    assert remote_bytes_held(some, 1, threads) == expected * each
    assert remote_bytes_held(some, 20, threads) == each
    assert remote_bytes_held(some, 5, 1) == min(4, readers(some, 1)) * each


def test_what_is_left_of_an_object_is_held_beside_its_larger_splits() -> None:
    some = [*splits("s3://shop/x", 2, 16 * MIB), *splits("s3://shop/x", 1, 8 * MIB)]
    assert remote_bytes_held(some, 1, 2) == (2 * 12 + 4) * MIB
    # One worker has the first, another one the others.
    assert remote_bytes_held(some, 2, 2) == (12 + 4) * MIB
    assert remote_bytes_held(some, 3, 2) == 12 * MIB


@pytest.mark.parametrize(("size", "held"), [(16, 16), (64, 64), (900, 24)])
def test_columns_that_are_fetched_whole_are_held_whole(size: int, held: int) -> None:
    some = [replace(split, row_groups=(0,)) for split in splits("s3://shop/x", 20, size * MIB)]
    assert remote_bytes_held(some, 20, 1) == held * MIB
    assert remote_bytes_arriving(some, held * MIB) == min(16, held) * MIB
    assert remote_bytes_arriving(splits("s3://shop/x", 20, size * MIB), held * MIB) == 0


def test_nothing_to_read_needs_no_more_readers() -> None:
    assert (readers([], 3), remote_bytes_held([], 2, 3)) == (3, 0)
