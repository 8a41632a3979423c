"""String ids are UTF-8 when they are read: what is not is named, and look-alikes stay apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.readers.features import read_features, split_features
from embertide.readers.ids import LONGEST_ID_BYTES, id_column, to_ids, to_text
from embertide.readers.nodes import read_nodes, split_nodes
from embertide.readers.reference import read_reference, split_reference
from embertide.readers.text_errors import has_inner_mark
from embertide.readers.where import Where
from embertide.spec.manifest import FeatureInput, NodeTable
from embertide.storage.protocol import Storage
from tests.support.edge_files import edge_input, read_all, refused, rows_of, write_parquet

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


def test_latin_1_in_nodes_features_and_reference(tmp_path: Path, storage: Storage) -> None:
    uri = f"file://{tmp_path}/n.parquet"
    write_parquet(tmp_path / "n.parquet", id=LATIN, x=[[1.0]] * 4, embedding=[[1.0]] * 4)
    table = NodeTable.model_validate({"uri": uri})
    features = FeatureInput.model_validate({"uri": uri, "vectorColumn": "x"})
    for read in (
        lambda: list(read_nodes(storage, table, "string", *split_nodes(storage, table))),
        lambda: list(
            read_features(storage, features, "string", *split_features(storage, features))
        ),
        lambda: read_reference(storage, split_reference(storage, uri, "string"), "string"),
    ):
        with pytest.raises(InputError) as caught:
            read()
        assert f"{uri} row 2 (from 0): column 'id' (" in str(caught.value)
        assert SHOWN in str(caught.value)


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (np.array([b"a", b"caf\xe9"]), SHOWN),
        (np.array(["a", "\ud800"]), "is '\\ud800', which holds a surrogate, half of a UTF-16"),
    ],
)
def test_npy_ids(tmp_path: Path, storage: Storage, ids: Any, shown: str) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    np.save(tmp_path / "ids.npy", ids)
    given = {"uri": f"file://{tmp_path}/x.npy", "format": "npy"}
    features = FeatureInput.model_validate(given | {"idsUri": f"file://{tmp_path}/ids.npy"})
    (split,) = split_features(storage, features, ids="string")
    with pytest.raises(InputError) as caught:
        list(read_features(storage, features, "string", split))
    assert f"{tmp_path}/ids.npy row 1 (from 0): column 0 (features.idsUri) {shown}" in str(
        caught.value
    )


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


INDICES = {"header": False, "columns": {"source": 0, "destination": 1}}
MARK = b"\xef\xbb\xbf"
JOINED = "begins with a byte-order mark, which would become part of an id: files were joined here"
NUL = "contains a NUL byte: the file is UTF-16 (write dialect: {encoding: utf-16})"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"a,b\n" * 9 + MARK + b"c,d\n", 10, JOINED),
        (MARK + MARK + b"a,b\n", 1, JOINED),
        (b"a,b\n" * 9 + b"c\0,d\n", 10, NUL),
        ("a,b\nc,d\n".encode("utf-16-le"), 1, NUL),
        ("a,b\nc,d\n".encode("utf-16-be"), 1, NUL),
        ("a,b\n".encode("utf-16"), 1, NUL),
        (b"a,b\n" * 9 + b"caf\xe9,d\n", 10, "is not UTF-8 ("),
        (b"a,b\n" * 9 + b"\xed\xa0\x80,d\n", 10, "is not UTF-8 ("),
    ],
)
@pytest.mark.parametrize("target", [8, 1 << 20])
def test_text_that_is_not_plain_utf8(
    tmp_path: Path, storage: Storage, text: bytes, line: int, message: str, target: int
) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(text)
    found = refused(storage, edge_input(path, "csv", **INDICES), "string", target=target)
    assert f"line {line}" in found
    assert message in found


def test_a_mark_at_the_beginning_and_within_a_line_is_nothing(
    tmp_path: Path, storage: Storage
) -> None:
    path = tmp_path / "e.csv"
    for end in (b"\n", b"\r\n"):
        path.write_bytes(MARK + b"a,b" + end + "ﬁ,\ufeffd".encode() + end)
        read = rows_of(read_all(storage, edge_input(path, "csv", **INDICES), "string"))
        assert read == [("a", "b"), ("ﬁ", "\ufeffd")]


def test_look_alikes_stay_apart(tmp_path: Path, storage: Storage) -> None:
    composed, decomposed = "café", "cafe\u0301"
    write_parquet(tmp_path / "e.parquet", src=[composed, ""], dst=[decomposed, "a\0b"])
    read = rows_of(read_all(storage, edge_input(tmp_path / "e.parquet", "parquet"), "string"))
    assert read == [(composed, decomposed), ("", "a\0b")]


def test_the_name_of_a_file(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e" / "cafe.parquet", src=["a"], dst=["b"])
    (tmp_path / "e" / "cafe.parquet").rename(tmp_path / "e" / "caf\udce9.parquet")
    message = refused(storage, edge_input(tmp_path / "e", "parquet"), "string")
    assert message.startswith(f"'file://{tmp_path}/e/caf\\udce9.parquet' has a name that is not")


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


def test_an_id_that_is_no_whole_number_is_named() -> None:
    with pytest.raises(InputError, match=r"^u row 6 \(from 0\): column 'id' \(f\) is 2\.5;"):
        to_ids(pa.array([1.0, 2.5]), id_column("f", "id", "int64"), "int64", Where("u", 5))


@pytest.mark.parametrize(
    ("block", "is_there"),
    [(b"a\nb", False), (MARK + b"a", True), (b"a\n" + MARK, True), (b"a" + MARK, False)],
)
def test_a_mark_within_a_block(block: bytes, is_there: bool) -> None:
    assert has_inner_mark(block) is is_there


def test_a_reference_of_several_files(tmp_path: Path, storage: Storage) -> None:
    for at in range(3):
        write_parquet(tmp_path / f"{at}.parquet", id=[f"n{at}"], embedding=[[1.0, at]])
    splits = split_reference(storage, f"file://{tmp_path}", "string")
    found = read_reference(storage, splits, "string")
    assert found.ids.tolist() == ["n0", "n1", "n2"]
    assert found.values.tolist() == [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("ids", "vectors", "column"),
    [(["a", None], [[1.0], [2.0]], "id"), (["a", "b"], [[1.0], None], "embedding")],
)
def test_a_null_in_a_reference(
    tmp_path: Path, storage: Storage, ids: Any, vectors: Any, column: str
) -> None:
    write_parquet(tmp_path / "r.parquet", id=ids, embedding=vectors)
    splits = split_reference(storage, f"file://{tmp_path}/r.parquet", "string")
    with pytest.raises(InputError, match=rf"row 1 \(from 0\): column '{column}' \("):
        read_reference(storage, splits, "string")
