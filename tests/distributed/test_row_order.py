"""The order of published rows: by id where ids are dense, else by hash, on every grid the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import embertide
from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from tests.support.job_files import WIDTH, write_job
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed


def published_ids(folder: Path, ids: str, grid: tuple[int, int]) -> list[Any]:
    files = write_job(folder, make_graph(), make_features(WIDTH), ids=ids)
    run_job(files.job, grid=GridShape.of(*grid), threads=1)
    return embertide.read(files.job.spec.output.uri).to_numpy()[0].tolist()


@pytest.mark.parametrize("ids", ["dense", "int64", "string"])
def test_rows_have_one_order_on_every_grid(tmp_path: Path, ids: str) -> None:
    alone, spread = (published_ids(tmp_path / f"{p}x{m}", ids, (p, m)) for p, m in ((1, 1), (2, 2)))
    assert alone == spread
    assert len(alone) == NODES
    assert (alone == sorted(alone)) == (ids == "dense")
