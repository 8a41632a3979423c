"""Features that are a history: the last row of each id counts, wherever the rows are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError
from embertide.readers.features import read_features, split_features
from embertide.readers.splits import Split
from embertide.spec.features import FeatureInput
from embertide.storage.protocol import Storage

IDS = [1, 0, 1, 2, 0, 1]
VALUES = [10, 20, 11, 30, 21, 12]
"""The last of each id is the largest: 21, 12, 30."""
TIMES: dict[str, Any] = {
    "numbers": [5, 1, 6, 1, 2, 7],
    "floats": [0.5, -1.0, 0.75, 0.0, 0.0, 1.0],
    "times": [datetime(2026, 11, day) for day in (5, 1, 6, 1, 2, 7)],
    "days": [date(2026, 11, day) for day in (5, 1, 6, 1, 2, 7)],
    "texts": [f"2026-11-0{day}" for day in (5, 1, 6, 1, 2, 7)],
    "decimals": [Decimal(day) for day in (5, 1, 6, 1, 2, 7)],
    "dictionary": pa.array([f"2026-11-0{day}" for day in (5, 1, 6, 1, 2, 7)]).dictionary_encode(),
}


def write(folder: Path, ids: Any, times: Any, objects: int = 2) -> FeatureInput:
    table = pa.table({"id": ids, "x": VALUES, "at": times})
    for number in range(objects):
        pq.write_table(
            table[number::objects] if objects == 1 else table.slice(number * 3, 3),
            folder / f"{number}.parquet",
            row_group_size=2,
        )
    return FeatureInput.model_validate(
        {"uri": f"file://{folder}", "columns": ["x"], "latestBy": "at"}
    )


def read(storage: Storage, features: FeatureInput, ids: Any, target: int = 1) -> dict[Any, float]:
    splits = [
        Split.from_json(split.to_json()) for split in split_features(storage, features, target, ids)
    ]
    batches = [batch for split in splits for batch in read_features(storage, features, ids, split)]
    found = [
        pair
        for batch in batches
        for pair in zip(batch.ids.tolist(), batch.values[:, 0].tolist(), strict=True)
    ]
    assert sum(split.rows for split in splits) == len(found) == 3
    return dict(found)


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("target", [1, 1 << 30])
def test_the_last_row_counts(tmp_path: Path, storage: Storage, kind: str, target: int) -> None:
    features = write(tmp_path, IDS, TIMES[kind])
    assert read(storage, features, "dense", target) == {0: 21, 1: 12, 2: 30}


def test_string_ids(tmp_path: Path, storage: Storage) -> None:
    features = write(tmp_path, [f"n{i}" for i in IDS], TIMES["times"])
    assert read(storage, features, "string") == {"n0": 21, "n1": 12, "n2": 30}


def test_days_of_folders(tmp_path: Path, storage: Storage) -> None:
    for day, x in ((20, 1.0), (21, 2.0), (22, 3.0)):
        (tmp_path / f"dt=2026-11-{day}").mkdir()
        table = pa.table({"id": list(range(23 - day)), "x": [x] * (23 - day)})
        pq.write_table(table, tmp_path / f"dt=2026-11-{day}" / "f.parquet")
    features = FeatureInput.model_validate(
        {"uri": f"file://{tmp_path}", "columns": ["x"], "latestBy": "dt", "recursive": True}
    )
    assert read(storage, features, "int64") == {0: 3.0, 1: 2.0, 2: 1.0}


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([7, 1, 6, 1, 2, 7], "1 id has two last rows by 'at' (features.latestBy), such as that of"),
        ([5, 1, None, 1, 2, 7], "row 2 (from 0): column 'at' (features.latestBy) has no value"),
        ([5, 1, np.nan, 1, 2, 7], "row 2 (from 0): column 'at' (features.latestBy) is NaN"),
        ([[5]] * 6, "column 'at' (features.latestBy) holds list"),
    ],
)
def test_no_last_row(tmp_path: Path, storage: Storage, times: list[Any], message: str) -> None:
    held = pa.array(times, from_pandas=False)
    with pytest.raises(InputError) as caught:
        read(storage, write(tmp_path, IDS, held), "dense")
    assert message in str(caught.value)


def test_rows_of_an_id_without_it_are_refused_with_the_field(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs idColumn: rows without ids"):
        FeatureInput.model_validate(
            {"uri": "file:///x", "columns": ["x"], "latestBy": "at", "idColumn": None}
        )
