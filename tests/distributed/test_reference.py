"""A reference beside the model: every run compares with it, and publishes nothing that differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from embertide.errors import InputError, ModelError
from embertide.facts.report import draw_page
from embertide.facts.telemetry.report import RunReport
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import list_versions
from embertide.io.versions.manifest import read_manifest
from embertide.launch.local import run_job
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec.grid import GridShape
from tests.support.job_files import WIDTH, JobFiles, write_job
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed

GRAPH = make_graph()
ROWS = range(0, NODES, 2)


def write_reference(files: JobFiles, ids: list[Any], vectors: np.ndarray) -> None:
    table = pa.table({"id": ids, "embedding": list(vectors)})
    pq.write_table(table, files.folder / "model" / "reference.parquet")


def make_job(folder: Path, **options: Any) -> tuple[JobFiles, list[Any], np.ndarray]:
    """A job with its model's own vectors of every second node as reference."""
    files = write_job(folder, GRAPH, make_features(WIDTH), ids="string", **options)
    program = read_model(open_storage(None), files.job.spec.model.uri)
    vectors = run_reference(program, [GRAPH.layer()] * 2, files.features)[torch.tensor(ROWS)]
    names = [files.names[row] for row in ROWS]
    write_reference(files, names, vectors.numpy())
    return files, names, vectors.numpy()


def run(files: JobFiles, grid: tuple[int, int] = (2, 2)) -> RunReport:
    return run_job(files.job, grid=GridShape.of(*grid), threads=1)


def manifest_of(files: JobFiles, report: RunReport) -> dict[str, Any]:
    return read_manifest(open_storage(None), files.job.spec.output.uri, report.version)[0]


def test_what_agrees_is_published_and_says_so(tmp_path: Path) -> None:
    files, names, _ = make_job(tmp_path)
    report = run(files)
    assert report.warnings == []
    manifest = manifest_of(files, report)
    found = manifest["reference"]
    assert (found["rows"], found["beyond"], found["tolerance"]) == (len(names), 0, 1e-3)
    assert 0 < found["largest_error"] < 1e-5
    assert "reference" in {entry["kind"] for entry in manifest["inputs"]}


def test_rows_in_bfloat16_are_allowed_their_rounding_which_the_report_states(
    tmp_path: Path,
) -> None:
    files, names, vectors = make_job(tmp_path, inference={"rows": "bfloat16"})
    report = run(files)
    assert manifest_of(files, report)["rowType"] == "bfloat16"
    found = manifest_of(files, report)["reference"]
    assert found["tolerance"] == 1e-3 + 2 * 2**-6
    assert report.facts is not None
    error = report.facts.row_error
    assert error is not None
    assert (report.facts.row_type, error.rows) == ("bfloat16", len(names))
    assert (error.largest_difference, error.largest_error) == (
        found["largest_difference"],
        found["largest_error"],
    )
    assert 1e-4 < error.largest_error < 2 * 2**-6
    page = draw_page(report, manifest_of(files, report)).replace("\N{NO-BREAK SPACE}", " ")
    assert f"in {len(names)} rows that the model" in page
    vectors[7, 1] += 0.04 * np.abs(vectors).max()
    write_reference(files, names, vectors)
    with pytest.raises(ModelError, match=f"in 1 of {len(names)} rows"):
        run(files, (1, 1))


def test_what_differs_is_not_published(tmp_path: Path) -> None:
    files, names, vectors = make_job(tmp_path)
    largest = np.abs(vectors).max()
    vectors[7, 1] += 0.01 * largest
    write_reference(files, names, vectors)
    with pytest.raises(ModelError) as refused:
        run(files)
    message = str(refused.value)
    assert f"in 1 of {len(names)} rows" in message
    assert f"Worst ids: {names[7]!r} (0.01)" in message
    assert list_versions(open_storage(None), files.job.spec.output.uri) == []
    yaml = files.folder / "model" / "model.yaml"
    yaml.write_text(yaml.read_text() + "\nreference_tolerance: 0.02\n")
    report = run(files, (1, 1))
    assert manifest_of(files, report)["reference"]["tolerance"] == 0.02


def test_ids_that_do_not_exist_are_named(tmp_path: Path) -> None:
    files, names, vectors = make_job(tmp_path)
    write_reference(files, [*names[:-1], "nobody"], vectors)
    with pytest.raises(InputError, match=r"1 of 49 ids are not among the 97 nodes .*: 'nobody'\."):
        run(files)


def test_vectors_of_another_width(tmp_path: Path) -> None:
    files, names, vectors = make_job(tmp_path)
    write_reference(files, names, vectors[:, :4])
    with pytest.raises(ModelError, match="have 4 columns, but the model gives 6"):
        run(files)


def test_samples_are_not_compared(tmp_path: Path) -> None:
    files, _, _ = make_job(tmp_path, inference={"fanout": [3, 5]})
    report = run(files)
    (warning,) = report.warnings
    assert "reference.parquet: with a fanout they are a sample's" in warning
    assert manifest_of(files, report)["reference"] is None
