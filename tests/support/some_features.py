"""Features of which a few rows are read, in files of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import NodeSplits
from embertide.engine.stages.features import LoadedNodes, load_nodes
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.features import split_features
from embertide.io.storage.protocol import Storage
from embertide.spec.grid import GridShape
from embertide.spec.nodes import NodeInput
from tests.support.world import make_job

NODES, WIDTH, GROUP = 5000, 64, 100
VALUES = np.random.default_rng(3).standard_normal((NODES, WIDTH)).astype(np.float32)
ROW = WIDTH * 4
Write = Callable[[Path, np.ndarray, np.ndarray], None]


def _npy(path: Path, _ids: np.ndarray, values: np.ndarray) -> None:
    np.save(path.with_suffix(".npy"), values)


def _fortran(path: Path, _ids: np.ndarray, values: np.ndarray) -> None:
    np.save(path.with_suffix(".npy"), np.asfortranarray(values))


def write_parquet(path: Path, ids: np.ndarray, values: np.ndarray, **options: Any) -> None:
    """Rows with ids, in small row groups."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), WIDTH)
    table = pa.table({"id": pa.array(ids, pa.int64()), "x": rows})
    pq.write_table(table, path.with_suffix(".parquet"), row_group_size=GROUP, **options)


NPY: dict[str, Any] = {"format": "npy"}
BY_ID: dict[str, Any] = {"vectorColumn": "x"}
KINDS: dict[str, tuple[dict[str, Any], Write]] = {
    "npy": (NPY, _npy),
    "fortran": (NPY, _fortran),
    "parquet": (BY_ID, write_parquet),
    "numbered": ({"vectorColumn": "x", "idColumn": ""}, write_parquet),
}


def write_files(
    folder: Path,
    kind: str,
    ids: np.ndarray | None = None,
    values: np.ndarray = VALUES,
    files: int = 2,
) -> None:
    """Features in several files, in the order of some ids."""
    folder.mkdir(exist_ok=True)
    ids = np.arange(NODES) if ids is None else ids
    for number, part in enumerate(np.array_split(ids, files)):
        KINDS[kind][1](folder / f"part-{number}", part, values[part % NODES])


def read_later(
    storage: Storage,
    uri: str,
    kind: str,
    count: int | None = NODES,
    target: int = 100_000,
    **more: Any,
) -> tuple[RunContext, LoadedNodes]:
    """What a process that reads features later knows of them."""
    node = NodeInput.model_validate(
        {"count": count, "features": {"uri": uri, **KINDS[kind][0], **more}}
    )
    assert node.features is not None
    schema = feature_schema(storage, node.features)
    features = split_features(storage, node.features, target, ids="dense", schema=schema)
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    ctx = RunContext(make_job(), exchange, storage, lambda _event: None, threads=2)
    return ctx, load_nodes(ctx, node, NodeSplits(features, [], schema), later=True)
