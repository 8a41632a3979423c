"""Splits: assigned to ranks in balance, and every row is in exactly one of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.errors import InputError
from embertide.io.readers import text_lines
from embertide.io.readers.edges import splits_at_once
from embertide.io.readers.splits import Shares, Split, assign_splits, map_objects, split_ranges
from embertide.io.readers.text_lines import codec_of, count_lines_before, first_lines, line_blocks
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo


def _split(i: int, size: int) -> Split:
    return Split.of(ObjectInfo(f"file:///e/{i:03}", size, "tag"), 0, size, size)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_assigned_splits_keep_their_order_and_balance(sizes: list[int], world: int) -> None:
    splits = [_split(i, size) for i, size in enumerate(sizes)]
    assigned = assign_splits(splits, world)
    assert len(assigned) == world
    assert [split for rank in assigned for split in rank] == splits
    weights = [sum(max(1, split.size) for split in rank) for rank in assigned]
    largest = max([max(1, size) for size in sizes], default=0)
    assert max(weights) <= sum(weights) / world + largest
    shares = Shares(splits)
    assert shares.rows(world) == [sum(split.rows for split in rank) for rank in assigned]
    assert shares.rows(world) is shares.rows(world)


@pytest.mark.parametrize(("mib", "at_once"), [(0, 64), (16, 64), (40, 25), (64, 16), (900, 16)])
def test_splits_that_are_read_at_once_are_bounded(mib: int, at_once: int) -> None:
    """Of one that is larger than 64 MiB, no more is in memory."""
    splits = [_split(0, 1 << 10), _split(1, mib << 20)]
    assert [splits_at_once(splits, threads) for threads in (1, 4, 64)] == [1, 4, at_once]


def test_equal_splits_are_assigned_evenly() -> None:
    assigned = assign_splits([_split(i, 10) for i in range(12)], 4)
    assert [len(rank) for rank in assigned] == [3, 3, 3, 3]


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(1, 64), st.integers(1, 4096))
def test_ranges_cover_everything_once(rows: int, row_bytes: int, target: int) -> None:
    ranges = split_ranges(rows, rows * row_bytes, target)
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(rows))
    assert all(stop > start for start, stop in ranges)
    assert all((stop - start - 1) * row_bytes <= 2 * target for start, stop in ranges)


def test_a_split_survives_json() -> None:
    info = ObjectInfo("s3://b/x.parquet", 100, '"tag"')
    split = replace(Split.of(info, 3, 7, 9, (1, 2)), base=5)
    assert Split.from_json(json.loads(json.dumps(split.to_json()))) == split
    text = _split(0, 5)
    assert Split.from_json(json.loads(json.dumps(text.to_json()))) == text
    assert text.info.etag == "tag"
    assert text.ids_info is None


def test_looks_are_answered_in_order_and_the_first_error_is_raised() -> None:
    assert map_objects(range(50), lambda i: i * i) == [i * i for i in range(50)]

    def look(i: int) -> int:
        if i in (7, 30):
            raise InputError(f"object {i}")
        return i

    with pytest.raises(InputError, match="object 7"):
        map_objects(range(50), look)


LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12), max_size=30
)


@settings(deadline=None)
@given(LINES, st.booleans(), st.data())
def test_every_line_is_in_exactly_one_range(
    lines: list[str], ended: bool, data: st.DataObject
) -> None:
    text = "\n".join(lines).encode() + (b"\n" if ended and lines else b"")
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    bounds = sorted({0, *cuts, len(text)})
    block = data.draw(st.integers(1, 40))
    found = []
    for start, stop in pairwise(bounds):
        for offset, lines_of in line_blocks(io.BytesIO(text), "u", start, stop, block):
            assert text[offset : offset + len(lines_of)] == lines_of
            assert start <= offset < stop
            assert offset == 0 or text[offset - 1 : offset] == b"\n"
            found.append(lines_of)
    assert b"".join(found) == text


@pytest.mark.parametrize("start", [0, 10])
def test_an_endless_line_is_refused(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "LONGEST_LINE_BYTES", 1 << 20)
    file = io.BytesIO(b"x" * (3 << 20))
    with pytest.raises(
        InputError, match=rf"^u has no line break in the 1 MiB after byte {start}: it"
    ):
        list(line_blocks(file, "u", start, 3 << 20, 1 << 16))


def test_an_endless_first_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "LONGEST_LINE_BYTES", 1 << 20)
    with pytest.raises(InputError, match="has no line break"):
        next(first_lines(io.BytesIO(b"x" * (2 << 20)), "u"))


def test_first_line_and_line_counts() -> None:
    text = b"a,b\n1,2\n3,4"
    assert next(first_lines(io.BytesIO(text), "u")) == b"a,b\n"
    assert list(first_lines(io.BytesIO(b"a,b"), "u")) == [b"a,b"]
    assert list(first_lines(io.BytesIO(b""), "u")) == []
    assert [count_lines_before(io.BytesIO(text), n) for n in (0, 3, 4, 8, 11)] == [0, 0, 1, 2, 2]


def test_the_name_tells_the_compression() -> None:
    assert [codec_of(f"s3://b/x.csv{end}") for end in ("", ".gz", ".zst")] == [None, "gzip", "zstd"]


def test_where_names_rows_and_lines() -> None:
    assert Where("s3://b/x.parquet", 10).row(7) == "s3://b/x.parquet row 17 (from 0)"
    assert Where("s3://b/x.parquet", 10).skip(5).row(2) == "s3://b/x.parquet row 17 (from 0)"
    assert Where("file:///x.csv", 0, lambda row: row + 2).skip(10).row(6) == "file:///x.csv line 18"
