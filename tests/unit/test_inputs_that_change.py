"""A file that is written to between its listing and the end of reading it is noticed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.storage.protocol import Storage
from tests.support.edge_files import edge_input

ROWS = 40_000
DENSE: Any = ("dense", "dense")


def write(path: Path, first: int) -> None:
    """Edges into the file, whatever was in it; as many bytes whichever they are."""
    held = np.arange(first, first + ROWS)
    with path.open("r+b" if path.exists() else "wb") as file:
        if path.suffix == ".parquet":
            table = pa.table({"src": held, "dst": held})
            pq.write_table(table, file, use_dictionary=False, compression="none")
        elif path.suffix == ".npy":
            np.save(file, np.stack([held, held], axis=1))
        else:
            text = "".join(f"{i},{i}\n" for i in held.tolist()).encode()
            file.write(gzip.compress(text) if path.suffix == ".gz" else text)


FORMATS = {"parquet": "parquet", "npy": "npy", "csv": "csv", "csv.gz": "csv"}


def columns(form: str) -> dict[str, Any]:
    indices = {"source": 0, "destination": 1}
    return {"header": False, "columns": indices} if form == "csv" else {}


@pytest.mark.parametrize("ending", FORMATS)
def test_while_it_is_read(tmp_path: Path, storage: Storage, ending: str, kernels: str) -> None:
    path = tmp_path / f"e.{ending}"
    write(path, 100_000)
    edges = edge_input(path, FORMATS[ending], **columns(FORMATS[ending]))
    (split,) = split_edges(storage, edges)
    batches = read_edges(storage, edges, DENSE, split, 1000)
    next(batches)
    write(path, 200_000)
    with pytest.raises(InputError) as caught:
        list(batches)
    assert str(caught.value).startswith(f"file://{path} changed while it was read; run the job")


@pytest.mark.parametrize("ending", FORMATS)
def test_before_it_is_read(tmp_path: Path, storage: Storage, ending: str) -> None:
    path = tmp_path / f"e.{ending}"
    write(path, 100_000)
    edges = edge_input(path, FORMATS[ending], **columns(FORMATS[ending]))
    (split,) = split_edges(storage, edges)
    write(path, 200_000)
    with pytest.raises(InputError) as caught:
        list(read_edges(storage, edges, DENSE, split))
    assert str(caught.value) == f"file://{path} changed after it was listed; run the job again"


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path, storage: Storage) -> None:
    path = tmp_path / "e.parquet"
    write(path, 100_000)
    edges = edge_input(path, "parquet")
    (split,) = split_edges(storage, edges)
    batches = read_edges(storage, edges, DENSE, split, 1000)
    read = [next(batches)]
    write(tmp_path / "other.parquet", 200_000)
    (tmp_path / "other.parquet").replace(path)
    read += batches
    assert np.concatenate([batch.source for batch in read]).tolist() == list(
        range(100_000, 100_000 + ROWS)
    )
