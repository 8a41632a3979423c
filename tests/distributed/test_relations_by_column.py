"""Edges that a column tells apart from others of the same files, in whole jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from embertide.errors import InputError, InputTooSmall
from embertide.io.storage.opening import open_storage
from embertide.launch.local import run_job
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from tests.support.exact import assert_exact
from tests.support.job_files import WIDTH, JobFiles, write_job
from tests.support.tiers import later
from tests.support.world import make_features, make_graph

pytestmark = pytest.mark.distributed

GRAPH = make_graph(weighted=True)


def write_with_others(folder: Path) -> JobFiles:
    """A job whose files have as many rows of another relation, in any order."""
    files = write_job(folder, GRAPH, make_features(WIDTH), ids="dense", edges="parquet")
    for path in (folder / "edges").iterdir():
        table = pq.read_table(path)
        rows = len(table)
        bought = table.append_column("type", pa.array(["BUYS"] * rows))
        viewed = table.set_column(1, "dst", table["src"]).append_column(
            "type", pa.array(["VIEWS"] * rows)
        )
        order = np.random.default_rng(0).permutation(2 * rows)
        pq.write_table(pa.concat_tables([bought, viewed]).take(order), path, row_group_size=50)
    return files


def job_with(files: JobFiles, equals: str, **fields: Any) -> EmbeddingJob:
    data = files.job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    where = {"column": "type", "equals": equals}
    data["spec"]["input"]["edges"][0] |= {"where": where, **fields}
    return EmbeddingJob.model_validate(data)


@pytest.mark.parametrize("grid", later([(1, 1), (2, 2)], (2, 2)))
def test_edges_of_one_relation(tmp_path: Path, grid: tuple[int, int]) -> None:
    files = write_with_others(tmp_path)
    report = run_job(
        job_with(files, "BUYS", minEdges=len(GRAPH.src)), grid=GridShape.of(*grid), threads=1
    )
    assert GRAPH.weight is not None
    layer = (*map(torch.from_numpy, (GRAPH.src, GRAPH.dst, GRAPH.weight)), None)
    program = read_model(open_storage(None), files.job.spec.model.uri)
    assert_exact(files.published(), run_reference(program, [layer] * 2, files.features))
    assert report.edges == len(GRAPH.src)


@pytest.mark.tier(1)
def test_too_few_and_none(tmp_path: Path) -> None:
    files, grid = write_with_others(tmp_path), GridShape.of(1, 1)
    with pytest.raises(InputTooSmall, match=rf"has {len(GRAPH.src):,} edges"):
        run_job(job_with(files, "BUYS", minEdges=len(GRAPH.src) + 1), grid=grid, threads=1)
    with pytest.raises(InputError, match=r"has no row in which column 'type' .* is 'buys'"):
        run_job(job_with(files, "buys"), grid=grid, threads=1)
    assert not (tmp_path / "out" / "LATEST").exists()
