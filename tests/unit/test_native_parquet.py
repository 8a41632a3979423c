"""Columns of parquet files decoded natively: the same values as pyarrow's, or none at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.io.readers.columns import Column
from embertide.io.readers.parquet import read_parquet, split_parquet
from embertide.io.storage.local import LocalStore
from embertide.kernels import native
from embertide.kernels.parquet import ColumnChunk, NotDecoded, Stored, stored

pytestmark = pytest.mark.skipif(native.lib is None, reason="pyarrow decodes without the kernels")

ROWS = 5000
_RANDOM = np.random.default_rng(8)
_WORDS = ["", "a", "u7", "sixteen letters!", "seventeen letters", "äöü" * 30]


def _columns() -> dict[str, pa.Array]:
    few = _RANDOM.integers(0, 7, ROWS)
    many = _RANDOM.integers(0, 4_000_000, ROWS)
    return {
        "small": pa.array(many),
        "large": pa.array(_RANDOM.integers(-(2**63), 2**63 - 1, ROWS)),
        "few": pa.array(few),
        "one": pa.array(np.full(ROWS, -3)),
        "int32": pa.array(many.astype(np.int32)),
        "uint32": pa.array(many.astype(np.uint32)),
        "uint64": pa.array(many.astype(np.uint64)),
        "float32": pa.array(_RANDOM.standard_normal(ROWS, np.float32)),
        "float64": pa.array(_RANDOM.standard_normal(ROWS)),
        "names": pa.array([f"u{i}" for i in many]),
        "words": pa.array([_WORDS[i % len(_WORDS)] for i in few]),
        "large names": pa.array([f"{i:016x}" for i in many], pa.large_string()),
        # Of every period that a copy of what was just unpacked may have.
        "periods": pa.array([("abcdefghijklmnopqrstu"[: i % 21 + 1]) * 9 for i in range(ROWS)]),
        "long": pa.array([_RANDOM.bytes(i % 300).hex() for i in range(ROWS)]),
    }


COLUMNS = _columns()


def _write(path: Path, array: pa.Array, **options: Any) -> pq.ParquetFile:
    nullable = options.pop("nullable", True)
    schema = pa.schema([pa.field("id", array.type, nullable)])
    pq.write_table(pa.table([array], schema), path, **options)
    return pq.ParquetFile(path)


def _at(file: pq.ParquetFile, group: int = 0) -> Stored | None:
    chunk = file.metadata.row_group(group).column(0)
    return stored(file.schema_arrow.field(0).type, chunk, file.metadata.schema.column(0))


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("page", [1000, 1 << 20])
def test_values_are_those_that_were_written(
    tmp_path: Path,
    name: str,
    version: str,
    compression: str,
    dictionary: bool,
    nullable: bool,
    page: int,
) -> None:
    array = COLUMNS[name]
    options = {"nullable": nullable, "compression": compression, "use_dictionary": dictionary}
    path = tmp_path / "x.parquet"
    # Pages are cut after so many values at the earliest; a small dictionary overflows.
    file = _write(
        path,
        array,
        data_page_version=version,
        data_page_size=page,
        write_batch_size=64,
        dictionary_pagesize_limit=page,
        **options,
    )
    at = _at(file)
    assert at is not None
    with path.open("rb") as raw:
        for batch in (700, ROWS):
            chunk = ColumnChunk(raw.fileno(), at)
            parts = [chunk.read(min(batch, ROWS - i)) for i in range(0, ROWS, batch)]
            assert pa.concat_arrays(parts).equals(array)
        with pytest.raises(NotDecoded, match="header"):
            chunk.read(1)


@pytest.mark.parametrize(
    ("array", "options"),
    [
        (pa.array([1, 2]), {"compression": "zstd"}),
        (
            pa.array([1, 2]),
            {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
        ),
        (pa.array([1, 2], pa.int8()), {}),
        (pa.array([[1], [2]]), {}),
        (pa.array([b"a"]), {}),
        (pa.array(["a"]).dictionary_encode(), {}),
    ],
)
def test_what_is_stored_otherwise_is_left_to_pyarrow(
    tmp_path: Path, array: pa.Array, options: dict[str, Any]
) -> None:
    assert _at(_write(tmp_path / "x.parquet", array, **options)) is None


def _read(path: Path, kind: str, batch: int) -> list[tuple[Any, int]]:
    storage, columns = LocalStore(), [Column("columns.source", "id", kind)]  # type: ignore[arg-type]
    info = storage.stat(f"file://{path}")
    assert info is not None
    (split,) = split_parquet(storage, info, columns, 1 << 30)
    batches = read_parquet(storage, columns, split, batch)
    return [(array, where.first_row) for (array,), where in batches]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pyarrow_goes_on_where_a_value_is_null(tmp_path: Path, version: str) -> None:
    values = [None if i == 3300 else i for i in range(ROWS)]
    options = {"data_page_version": version, "data_page_size": 1000, "use_dictionary": False}
    path = tmp_path / "x.parquet"
    _write(path, pa.array(values), row_group_size=2500, write_batch_size=64, **options)
    found = _read(path, "integer", 100)
    assert [value for array, _ in found for value in array.to_pylist()] == values
    firsts = [first for _, first in found]
    assert firsts == [sum(len(array) for array, _ in found[:i]) for i in range(len(found))]
    assert {len(array) for array, _ in found} == {100}


@pytest.mark.parametrize("name", ["small", "names", "words"])
def test_several_row_groups_follow_each_other(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.parquet"
    _write(path, COLUMNS[name], row_group_size=1234)
    found = _read(path, "id", 1000)
    assert pa.concat_arrays([array for array, _ in found]).equals(COLUMNS[name])
    assert [first for _, first in found[:3]] == [0, 1000, 1234]


@pytest.mark.parametrize("name", ["small", "words", "names", "periods"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_damage_is_refused_or_gives_other_values(tmp_path: Path, name: str, version: str) -> None:
    path = tmp_path / "x.parquet"
    at = _at(_write(path, COLUMNS[name], data_page_version=version, data_page_size=4000))
    assert at is not None
    whole, random = path.read_bytes(), np.random.default_rng(5)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for place in random.integers(at.offset, at.offset + at.length, random.integers(1, 4)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        with path.open("rb") as raw:
            try:
                ColumnChunk(raw.fileno(), at).read(ROWS)
            except NotDecoded:
                refused += 1
    assert refused > 20


def test_a_file_that_was_cut_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    at = _at(_write(path, COLUMNS["names"]))
    assert at is not None
    data = path.read_bytes()
    path.write_bytes(data[: at.offset + at.length // 2])
    with path.open("rb") as raw, pytest.raises(NotDecoded, match="cannot be read to its end"):
        ColumnChunk(raw.fileno(), at).read(ROWS)
    path.write_bytes(data[: at.offset] + bytes(at.length) + data[at.offset + at.length :])
    with pytest.raises(InputError, match=r"x\.parquet is not readable as parquet"):
        _read(path, "id", 100)


@pytest.mark.parametrize(
    ("more", "said"),
    [(9, "of another kind"), (10, "header is not whole"), (30, "header is not whole")],
)
def test_numbers_of_more_bytes_than_they_may_have_are_refused(
    tmp_path: Path, more: int, said: str
) -> None:
    path = tmp_path / "x"
    # A field of type i32, a number of so many bytes, the end of the struct.
    header = b"\x15" + b"\x80" * more + b"\x00" + b"\x00"
    path.write_bytes(header + bytes(100))
    with path.open("rb") as raw, pytest.raises(NotDecoded, match=said):
        ColumnChunk(raw.fileno(), Stored(pa.int64(), 0, len(header), True, False)).read(1)


# Of every kind of character, and of every way in which bytes are none.
_TEXTS = [b"", b"a", "é".encode(), "€".encode(), "𝄞".encode(), b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"]
_NO_TEXTS = [
    b"caf\xe9",  # Latin-1
    b"\x80",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9d\x84",
    b"\xc0\x80",  # longer than it need be
    b"\xc1\xbf",
    b"\xe0\x9f\xbf",
    b"\xf0\x8f\xbf\xbf",
    b"\xed\xa0\x80",  # a surrogate
    b"\xf4\x90\x80\x80",  # beyond the last character
    b"\xf5\x80\x80\x80",
    b"\xff",
]


def _strings(values: list[bytes]) -> pa.Array:
    """An array of these as strings, whatever they are."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.mark.parametrize("bad", _NO_TEXTS)
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("before", [0, 1, 2, 63, 64, 200])
@pytest.mark.parametrize("after", [0, 70])
def test_strings_that_are_not_utf8_are_not_decoded(
    tmp_path: Path, bad: bytes, dictionary: bool, before: int, after: int
) -> None:
    good = [_TEXTS[i % len(_TEXTS)] for i in range(before + after)]
    # Beside a string of more than 127 bytes, whose length is no ASCII either.
    for values in (good, [*good, b"x" * 200]):
        file = _write(tmp_path / "e.parquet", _strings(values), use_dictionary=dictionary)
        at = _at(file)
        assert at is not None
        if values:
            with (tmp_path / "e.parquet").open("rb") as raw:
                assert ColumnChunk(raw.fileno(), at).read(len(values)).to_pylist() == [
                    text.decode() for text in values
                ]
        values = [*values[:before], bad, *values[before:]]
        file = _write(tmp_path / "e.parquet", _strings(values), use_dictionary=dictionary)
        at = _at(file)
        assert at is not None
        with (tmp_path / "e.parquet").open("rb") as raw, pytest.raises(NotDecoded, match="UTF-8"):
            ColumnChunk(raw.fileno(), at).read(len(values))


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_character_does_not_go_on_in_the_next_string(tmp_path: Path, dictionary: bool) -> None:
    for values in ([b"\xc3", b"\xa9"], [b"a\xe2", b"", b"\x82\xac"]):
        file = _write(tmp_path / "e.parquet", _strings(values), use_dictionary=dictionary)
        at = _at(file)
        assert at is not None
        with (tmp_path / "e.parquet").open("rb") as raw, pytest.raises(NotDecoded, match="UTF-8"):
            ColumnChunk(raw.fileno(), at).read(len(values))


@pytest.mark.tier(2)
def test_any_bytes_are_text_where_python_has_them_so(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    leads = np.array([0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xA0, 0x9F, 0x8F, 0x90])
    seen = {True: 0, False: 0}
    for _ in range(2000):
        text = "é€𝄞a\ud7ff\ue000"[: random.integers(0, 7)].encode() * int(random.integers(1, 30))
        spot = int(random.integers(0, len(text) + 1))
        held = text[:spot] + bytes(random.choice(leads, int(random.integers(0, 4))).tolist())
        held += text[spot:]
        file = _write(tmp_path / "e.parquet", _strings([held]), use_dictionary=False)
        at = _at(file)
        assert at is not None
        try:
            held.decode()
            expected = True
        except UnicodeDecodeError:
            expected = False
        seen[expected] += 1
        with (tmp_path / "e.parquet").open("rb") as raw:
            try:
                ColumnChunk(raw.fileno(), at).read(1)
                decoded = True
            except NotDecoded:
                decoded = False
        assert decoded == expected, held
    assert min(seen.values()) > 100
