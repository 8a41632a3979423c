"""Files as other people's tools write them, by the tools themselves."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

IDS = [1, 2, 100]
UUIDS = ["6f0b0a1e-9a8c-4f6e-8d7b-2f1c3a4b5c6d", "00000000-0000-0000-0000-0000000000ff"]
NAMES = ["ann", "bö", "NULL"]

Write = Callable[[Path], None]


def arrow(**columns: Any) -> Write:
    """As pyarrow writes it."""
    return lambda path: pq.write_table(pa.table(columns), path)


def duck(columns: str, rows: str) -> Write:
    """As duckdb writes it: ``columns`` of ``VALUES rows t(a)``."""

    def write(path: Path) -> None:
        query = f"SELECT {columns} FROM (VALUES {rows}) t(a)"
        duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")

    return write


def both(values: Any) -> dict[str, Any]:
    return {"src": values, "dst": values}


def _pandas(values: Any) -> Write:
    return lambda path: pandas.DataFrame(both(values)).to_parquet(path)


def _polars(values: Any) -> Write:
    return lambda path: polars.DataFrame(both(values)).write_parquet(path)


def _duck_ids(kind: str) -> Write:
    return duck(f"a::{kind} AS src, a::{kind} AS dst", "(1), (2), (100)")


WHOLE_NUMBERS: dict[str, Write] = {
    "pandas, floats of a column with gaps": _pandas(pandas.Series([1, 2, 100, None])[:3]),
    "pandas, Int64": _pandas(pandas.Series(IDS, dtype="Int64")),
    "pandas, a category": _pandas(pandas.Series(IDS, dtype="category")),
    "polars, UInt64": _polars(polars.Series(IDS, dtype=polars.UInt64)),
    "polars, Int8": _polars(polars.Series(IDS, dtype=polars.Int8)),
    "polars, Decimal": _polars(polars.Series(IDS, dtype=polars.Decimal(38, 0))),
    "duckdb, BIGINT": _duck_ids("BIGINT"),
    "duckdb, HUGEINT": _duck_ids("HUGEINT"),
    "duckdb, DECIMAL(38, 0)": _duck_ids("DECIMAL(38, 0)"),
    "duckdb, DECIMAL(18, 0)": _duck_ids("DECIMAL(18, 0)"),
    "duckdb, DECIMAL(5, 1)": _duck_ids("DECIMAL(5, 1)"),
    "duckdb, DOUBLE": _duck_ids("DOUBLE"),
    "BigQuery, NUMERIC": arrow(**both(pa.array(map(Decimal, IDS), pa.decimal128(38, 9)))),
    "BigQuery, BIGNUMERIC": arrow(**both(pa.array(map(Decimal, IDS), pa.decimal256(76, 38)))),
    "floats of 4 bytes": arrow(**both(pa.array(map(float, IDS), pa.float32()))),
    "floats of 2 bytes": arrow(**both(pa.array(map(float, IDS), pa.float16()))),
    "a dictionary": arrow(**both(pa.array(IDS).dictionary_encode())),
}
"""Ids 1, 2 and 100 as ``src`` and ``dst``."""

TEXTS: dict[str, tuple[Write, list[str]]] = {
    "pandas": (_pandas(NAMES), NAMES),
    "pandas, a category": (_pandas(pandas.Series(NAMES, dtype="category")), NAMES),
    "polars": (_polars(NAMES), NAMES),
    "polars, Categorical": (_polars(polars.Series(NAMES, dtype=polars.Categorical)), NAMES),
    "Impala, bytes": (arrow(**both(pa.array([n.encode() for n in NAMES]))), NAMES),
    "large bytes": (
        arrow(**both(pa.array([n.encode() for n in NAMES], pa.large_binary()))),
        NAMES,
    ),
    "views of bytes": (
        arrow(**both(pa.array([n.encode() for n in NAMES], pa.binary_view()))),
        NAMES,
    ),
    "a dictionary of bytes": (
        arrow(**both(pa.array([n.encode() for n in NAMES]).dictionary_encode())),
        NAMES,
    ),
    "views of strings": (arrow(**both(pa.array(NAMES, pa.string_view()))), NAMES),
    "bytes of one length": (
        arrow(**both(pa.array([b"ab12", b"cd34"], pa.binary(4)))),
        ["ab12", "cd34"],
    ),
    "duckdb, UUID": (
        duck("a::UUID AS src, a::UUID AS dst", ", ".join(f"('{u}')" for u in UUIDS)),
        UUIDS,
    ),
    "duckdb, BLOB": (
        duck("a::BLOB AS src, a::BLOB AS dst", "('ann'), ('bo')"),
        ["ann", "bo"],
    ),
    "pyarrow, UUID": (
        arrow(
            **both(
                pa.array([bytes.fromhex(u.replace("-", "")) for u in UUIDS], pa.uuid()),
            )
        ),
        UUIDS,
    ),
    "pandas, numbers as text": (_pandas(["1", "2.0", "007"]), ["1", "2.0", "007"]),
}
"""Ids that are text, as ``src`` and ``dst``, and what they are."""
