"""String ids are UTF-8 when they are read: what is not is named, and look-alikes stay apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.io.readers.ids import LONGEST_ID_BYTES, id_column, to_ids, to_text
from embertide.io.readers.text_errors import has_inner_mark
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from tests.support.edge_files import edge_input, refused, write_parquet

LATIN = pa.array([b"abc", b"x" * 200, b"caf\xe9", b"ok"], pa.binary()).view(pa.string())
HELD = {
    "string": LATIN,
    "large_string": LATIN.cast(pa.large_string()),
    "string_view": LATIN.cast(pa.string_view()),
}
SHOWN = "is b'caf\\xe9', whose byte 3 (from 0) is not UTF-8; convert the ids to UTF-8"


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("compression", ["snappy", "zstd"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_latin_1_in_parquet(
    tmp_path: Path, storage: Storage, kernels: str, held: str, compression: str, dictionary: bool
) -> None:
    path = tmp_path / "e.parquet"
    table = pa.table({"src": pa.array(["a"] * 4), "dst": HELD[held]})
    pq.write_table(table, path, compression=compression, use_dictionary=dictionary)
    message = refused(storage, edge_input(path, "parquet"), "string", rows=2)
    assert message.startswith(
        f"file://{path} row 2 (from 0): column 'dst' (columns.destination) {SHOWN}"
    )


def test_latin_1_in_a_dictionary(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.parquet"
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), LATIN)
    write_parquet(path, src=codes, dst=codes)
    message = refused(storage, edge_input(path, "parquet"), "string")
    assert message.startswith(f"file://{path} row 0 (from 0), or a row soon after: a column of")
    assert "not UTF-8; convert it to UTF-8 where it is written" in message


def test_a_long_id_is_shown_in_part(tmp_path: Path, storage: Storage) -> None:
    held = pa.array([b"x" * 10_000_000 + b"\xe9" + b"y" * 100], pa.binary()).view(pa.string())
    write_parquet(tmp_path / "e.parquet", src=held, dst=held)
    message = refused(storage, edge_input(tmp_path / "e.parquet", "parquet"), "string")
    assert f"is ... b'{'x' * 40}\\xe9{'y' * 39}' ..., whose byte 10000000 (from 0)" in message


def test_the_name_of_a_column(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, src=["a"], dst=["b"], other=[1])
    path.write_bytes(path.read_bytes().replace(b"other", b"oth\xe9r"))
    message = refused(storage, edge_input(path, "parquet"), "string")
    assert message == (
        f"file://{path}: the name of a column is not UTF-8 (b'oth\\xe9r'); rename it where the "
        "file is written"
    )


def test_the_name_of_a_file(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e" / "cafe.parquet", src=["a"], dst=["b"])
    (tmp_path / "e" / "cafe.parquet").rename(tmp_path / "e" / "caf\udce9.parquet")
    message = refused(storage, edge_input(tmp_path / "e", "parquet"), "string")
    assert message.startswith(f"'file://{tmp_path}/e/caf\\udce9.parquet' has a name that is not")


MARK = b"\xef\xbb\xbf"
MARK = b"\xef\xbb\xbf"
ALLOWED, LONGER = ("x" * length for length in (LONGEST_ID_BYTES, LONGEST_ID_BYTES + 1))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (pa.array([ALLOWED, "a"]), [ALLOWED, "a"]),
        (pa.array(["a", ALLOWED, LONGER]), "row 7 (from 0): column 'id' (f) is 'xxx"),
        (pa.array([b"abc", b"def", b"ghi"], pa.binary(3))[1:], ["def", "ghi"]),
    ],
)
def test_long_ids_and_bytes_of_one_length(held: Any, expected: Any) -> None:
    def ids() -> Any:
        column, where = id_column("f", "id", "string"), Where("u", 5)
        return to_ids(to_text(held, column, where), column, "string", where)

    if isinstance(expected, str):
        with pytest.raises(InputError, match=re.escape(expected)):
            ids()
    else:
        assert ids().to_pylist() == expected


@pytest.mark.parametrize(
    ("block", "is_there"),
    [(b"a\nb", False), (MARK + b"a", True), (b"a\n" + MARK, True), (b"a" + MARK, False)],
)
def test_a_mark_within_a_block(block: bytes, is_there: bool) -> None:
    assert has_inner_mark(block) is is_there
