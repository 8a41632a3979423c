"""A job whose features are flags, counts and moments: as if its user had standardised them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from embertide.engine.planning.inputs import list_inputs
from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import iter_embeddings
from embertide.launch.local import run_job
from embertide.models.folder import LayerName
from embertide.models.folder_writing import StoredTable, folder_files
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.small_job import NODES, SmallJob

pytestmark = pytest.mark.distributed

RNG = np.random.default_rng(4)
COLUMNS = {
    "clicks": RNG.integers(0, 2**40, NODES),
    "f10": RNG.integers(1_700_000_000, 1_700_086_400, NODES),
    "f2": RNG.standard_normal(NODES),
    "active": RNG.random(NODES) < 0.5,
}
ORDER = ["active", "f10", "f2", "clicks"]
RAW = np.stack([COLUMNS[name].astype(np.float64) for name in ORDER], axis=1)
MEAN, SCALE = RAW.mean(axis=0), RAW.std(axis=0)
FEATURES = "input__nodes__0__features"


def published(job: SmallJob, grid: tuple[int, int]) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """[NODES, D'] by id, and the version's manifest."""
    report = run_job(load_manifest(Path(job.manifest)), grid=GridShape.of(*grid), threads=1)
    assert report.rows == NODES
    found = np.empty((NODES, 4), np.float32)
    for ids, values in iter_embeddings(open_storage(None), f"file://{job.output}"):
        found[ids] = values
    latest = json.loads((job.output / "LATEST").read_text())["version"]
    manifest = next((job.output / "versions" / latest).glob("*manifest.json"))
    return found, json.loads(manifest.read_text())


def test_raw_columns_and_a_scaler_give_what_standardised_vectors_give(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    job.write_features(np.arange(NODES), (RAW - MEAN) / SCALE)
    expected, said = published(job, (1, 1))
    assert said["features"] == {"width": 4, "vectorColumn": "x"}

    job.features.unlink()
    for part in (slice(0, 5), slice(5, None)):
        columns = {"id": np.arange(NODES)[part]} | {k: v[part] for k, v in COLUMNS.items()}
        path = job.features.parent / f"half={part.start}" / "part.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table(columns), path)
    np.savez(tmp_path / "scaler.npz", mean=MEAN, scale=SCALE)
    job.write_manifest(
        **{
            f"{FEATURES}__vectorColumn": None,
            f"{FEATURES}__columns": ["a*", "f*", "clicks"],
            f"{FEATURES}__recursive": True,
            f"{FEATURES}__scaling": {"uri": "scaler.npz"},
        }
    )
    found, said = published(job, (2, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    uri = f"file://{tmp_path}/scaler.npz"
    scaling = {"uri": uri, "mean": MEAN.tolist(), "scale": SCALE.tolist()}
    assert said["features"] == {"width": 4, "columns": ORDER, "scaling": scaling}
    assert [entry["kind"] for entry in said["inputs"]].count("scaling") == 1


def with_table(job: SmallJob, table: torch.Tensor) -> None:
    """The job's model, with a table in place of features."""
    program = read_model(open_storage(None), f"file://{job.model}")
    layers = tuple(LayerName("", "GCNConv", True) for _ in program.outputs)
    shutil.rmtree(job.model)
    job.model.mkdir()
    stored = {"": [StoredTable(table)]}
    files = folder_files(program, layers, "Net", "pyg", stored).with_proof({})
    for name, data in files.in_order():
        (job.model / name).write_bytes(data)


def test_a_table_of_the_model_gives_what_features_give(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    expected, _ = published(job, (1, 1))
    with_table(job, torch.from_numpy(np.stack(pq.read_table(job.features)["x"].to_numpy())))
    shutil.rmtree(job.features.parent)
    job.write_manifest(**{FEATURES: None, "input__nodes__0__count": NODES})
    found, said = published(job, (2, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert said["features"] == {"width": 4}
    read = [entry["uri"] for entry in said["inputs"] if entry["kind"] == "features"]
    assert read == [f"file://{next(job.model.glob('table-*.npy'))}"]


def test_features_that_replace_a_table_of_the_model_are_reported(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    job.write_manifest(input__edges__0__weights="ones")
    with_table(job, torch.zeros(NODES, 4))
    report = run_job(load_manifest(Path(job.manifest)), grid=GridShape.of(1, 1), threads=1)
    (warning,) = report.warnings
    table = f"file://{next(job.model.glob('table-*.npy'))}"
    assert table in warning
    assert "the manifest gives them features: these were read in the table's place" in warning
    # By ids of the job's own the table's file is what the manifest names, and nothing is left out.
    inputs = list_inputs(open_storage(None), load_manifest(Path(job.manifest)))
    assert list(inputs.unread_tables.values()) == [table]
    job.write_manifest(**{FEATURES: {"uri": table, "format": "npy"}})
    inputs = list_inputs(open_storage(None), load_manifest(Path(job.manifest)))
    assert inputs.unread_tables == {}
