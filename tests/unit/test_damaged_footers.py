"""A footer of parquet with a changed byte ends in an error of ours, and not the process."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import EmbertideError, OutputError
from embertide.io.readers.columns import Column
from embertide.io.readers.parquet import opened, split_parquet
from embertide.io.storage.opening import open_storage
from embertide.io.versions.formats.parquet import id_batches
from embertide.io.versions.rows import ID_COLUMN
from embertide.kernels import native

pytestmark = pytest.mark.skipif(native.lib is None, reason="without native kernels")

MIB = 1 << 20


def _file() -> bytes:
    rng, out = np.random.default_rng(0), io.BytesIO()
    table = pa.table(
        {
            "src": pa.array(range(50), pa.int64()),
            "name": pa.array([f"n{i}" if i % 7 else None for i in range(50)]),
            "vector": pa.array(list(rng.random((50, 3), np.float32)), pa.list_(pa.float32())),
        }
    )
    pq.write_table(table, out, row_group_size=25)
    return out.getvalue()


def _footer(data: bytes) -> range:
    return range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data))


def _changes(data: bytes) -> Iterator[tuple[int, int]]:
    """Bytes of the footer, and what each is changed to."""
    for at in _footer(data):
        for value in sorted({0, 3, 36, 255, data[at] ^ 1, data[at] ^ 0x10} - {data[at]}):
            yield at, value


def _columns() -> list[Column]:
    return [
        Column("source", "src", "integer"),
        Column("id", "name", "text"),
        Column("vectorColumn", "vector", "vector"),
    ]


def _read(uri: str) -> str:
    """ "" where the file is read, else the error."""
    storage = open_storage(None)
    try:
        (info,) = storage.list(uri)
        for split in split_parquet(storage, info, _columns(), MIB):
            with opened(storage, split.info, ["src"], [], 0) as (file, _raw):
                for group in range(file.metadata.num_row_groups):
                    assert file.metadata.row_group(group).column(0).compression
        return ""
    except EmbertideError as error:
        return str(error)


@pytest.mark.tier(2)
def test_no_change_of_a_byte_ends_the_process(tmp_path: Path) -> None:
    data, path = _file(), tmp_path / "edges.parquet"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for at, value in _changes(data):
            os.write(writer, f"{at} {value}: ".encode())
            path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            try:
                why = _read(path.as_uri())
                good = not why or (path.as_uri() in why and "\n" not in why.strip())
            except BaseException as error:
                why, good = repr(error), False
            os.write(writer, f"{'' if good else why[:200]}\n".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        lines = answers.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert status == 0, lines[-1]
    assert len(lines) == len(list(_changes(data)))
    assert [line for line in lines if not line.endswith(": ")] == []


def test_a_healthy_footer_has_no_problem(tmp_path: Path) -> None:
    data = _file()
    assert native.lib.footer_problem(data[_footer(data).start : -8]) == ""
    path = tmp_path / "edges.parquet"
    path.write_bytes(data)
    assert _read(path.as_uri()) == ""


@pytest.mark.parametrize("value", [0, 255])
def test_another_name_of_a_published_column_is_damage(value: int, tmp_path: Path) -> None:
    out, path = io.BytesIO(), tmp_path / "part.parquet"
    pq.write_table(pa.table({ID_COLUMN: pa.array(["a", "b"])}), out)
    data = out.getvalue()
    at = data.index(ID_COLUMN.encode(), _footer(data).start)
    path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
    with pytest.raises(OutputError, match="of a published version is missing or damaged"):
        list(id_batches(open_storage(None), path.as_uri(), len(data), 16))
