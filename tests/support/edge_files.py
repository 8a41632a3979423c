"""Edge lists on disk, in every format, for the tests of their readers."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.io.readers.edges import EdgeBatch, read_edges, split_edges
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import EdgeInput

RNG = np.random.default_rng(5)
SOURCE = RNG.integers(0, 500, 997)
DESTINATION = RNG.integers(0, 500, 997)
WEIGHT = RNG.random(997).astype(np.float32)


def edge_input(path: Path, form: str, **fields: Any) -> EdgeInput:
    return EdgeInput.model_validate({"uri": f"file://{path}", "format": form, **fields})


def read_all(
    storage: Storage, edges: EdgeInput, ids: Any = "dense", target: int = 1 << 20, rows: int = 100
) -> Iterator[EdgeBatch]:
    for split in split_edges(storage, edges, target, (ids, ids)):
        yield from read_edges(storage, edges, (ids, ids), split, rows)


def rows_of(batches: Iterator[EdgeBatch]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        columns = [batch.source.tolist(), batch.destination.tolist()]
        if batch.weight is not None:
            columns.append(batch.weight.tolist())
        rows += zip(*columns, strict=True)
    return rows


EDGES = list(zip(SOURCE.tolist(), DESTINATION.tolist(), strict=True))
WEIGHTED = list(zip(SOURCE.tolist(), DESTINATION.tolist(), WEIGHT.tolist(), strict=True))


def write_parquet(path: Path, group: int = 100, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group)


def csv_text(separator: str = ",", header: bool = True) -> str:
    lines = [separator.join(map(repr, row)) for row in WEIGHTED]
    names = [separator.join(("src", "dst", "w"))] if header else []
    return "\n".join(names + lines) + "\n"


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data[:2000]) + gzip.compress(data[2000:]),
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def refused(storage: Storage, edges: EdgeInput, ids: Any = "dense", **kwargs: Any) -> str:
    with pytest.raises(InputError) as caught:
        rows_of(read_all(storage, edges, ids, **kwargs))
    return str(caught.value)
