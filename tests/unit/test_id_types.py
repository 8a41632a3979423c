"""Ids of any type that tools write: whole numbers are one id whatever their type, text is text."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from embertide.io.readers.features import read_features, split_features
from embertide.io.readers.nodes import read_nodes, split_nodes
from embertide.io.readers.reference import read_reference, split_reference
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import FeatureInput, NodeTable
from tests.support.edge_files import edge_input, read_all, rows_of, write_parquet
from tests.support.tool_files import IDS, TEXTS, WHOLE_NUMBERS


@pytest.mark.parametrize("tool", WHOLE_NUMBERS)
@pytest.mark.parametrize("ids", ["int64", "dense"])
def test_whole_numbers(tmp_path: Path, storage: Storage, kernels: str, tool: str, ids: str) -> None:
    path = tmp_path / "e.parquet"
    WHOLE_NUMBERS[tool](path)
    batches = list(read_all(storage, edge_input(path, "parquet"), ids))
    assert batches[0].source.dtype == np.int64
    assert rows_of(iter(batches)) == [(i, i) for i in IDS]


@pytest.mark.parametrize("tool", TEXTS)
def test_text(tmp_path: Path, storage: Storage, kernels: str, tool: str) -> None:
    path = tmp_path / "e.parquet"
    write, names = TEXTS[tool]
    write(path)
    for rows in (1, 100):
        batches = read_all(storage, edge_input(path, "parquet"), "string", rows=rows)
        assert rows_of(batches) == [(name, name) for name in names]


def _kinds_of_one() -> dict[str, Any]:
    return {
        "int64": pa.array([1]),
        "decimal": pa.array([Decimal(1)], pa.decimal128(38, 0)),
        "float": pa.array([1.0]),
        "uint8": pa.array([1], pa.uint8()),
    }


@pytest.mark.parametrize("kind", _kinds_of_one())
def test_edges_nodes_features_and_references_agree(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    column = _kinds_of_one()[kind]
    path = tmp_path / "n.parquet"
    columns = {"id": column, "src": column, "dst": column}
    write_parquet(path, **columns, x=[[1.0]], embedding=[[1.0]])
    uri = f"file://{path}"
    assert rows_of(read_all(storage, edge_input(path, "parquet"), "int64")) == [(1, 1)]
    table = NodeTable.model_validate({"uri": uri})
    (nodes,) = read_nodes(storage, table, "int64", *split_nodes(storage, table, ids="int64"))
    features = FeatureInput.model_validate({"uri": uri, "vectorColumn": "x"})
    splits = split_features(storage, features, ids="int64")
    (rows,) = read_features(storage, features, "int64", *splits)
    reference = read_reference(storage, split_reference(storage, uri, "int64"), "int64")
    assert nodes.ids.tolist() == rows.ids.tolist() == reference.ids.tolist() == [1]
