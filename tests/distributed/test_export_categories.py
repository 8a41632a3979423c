"""Categories are looked up exactly on every grid; one that the model does not know is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import embertide
from embertide.errors import InputError
from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.exact import assert_exact
from tests.support.expected import inputs
from tests.support.export_texts import module_of
from tests.support.small_job import SmallJob
from tests.support.tiers import by_turns

pytestmark = pytest.mark.distributed

FILE = "exports/looked_up.txt"
NODES = 60
EDGES = np.random.default_rng(7).integers(0, NODES, (2, 260))


def columns(rows: int, width: int, categories: Any) -> Any:
    """[rows, width] numbers, and categories, of which every one is there."""
    rng = np.random.default_rng(8)
    values = rng.standard_normal((rows, width)).astype(np.float32)
    for column, count in categories.items():
        values[:, column] = rng.permutation(rows) % count
    return values


def made(folder: Path, name: str) -> tuple[SmallJob, Any, Any, Any]:
    """A job with the case's module, its features of nodes and of edges."""
    job = SmallJob.make(folder)
    module, options = module_of(FILE, name)
    for file in job.model.iterdir():
        file.unlink()
    nodes, of_edges = (
        options.pop(key, {}).get("", {}) for key in ("categories", "edge_categories")
    )
    x = columns(NODES, options["width"], nodes)
    carried = columns(EDGES.shape[1], len(of_edges), of_edges)
    embertide.export(module, job.model, categories=nodes, edge_categories=of_edges, **options)
    job.write_features(np.arange(NODES), x)
    named = {f"f{at}": carried[:, at] for at in of_edges}
    job.write_edges(EDGES[0], EDGES[1], **named)
    features = {"input__edges__0__features": {"columns": list(named)}} if named else {}
    job.write_manifest(**features)
    return job, module, x, carried


def run(job: SmallJob, grid: tuple[int, int]) -> None:
    run_job(load_manifest(Path(job.manifest)), grid=GridShape.of(*grid), threads=1)


def own(module: Any, x: Any, carried: Any) -> torch.Tensor:
    """What the module gives itself, in float64; integers where all columns are categories."""
    given = torch.from_numpy(x).double()
    given = given.long() if torch.equal(given, given.round()) else given
    more = [torch.from_numpy(carried).long()] if carried.shape[1] else []
    with torch.no_grad():
        found: torch.Tensor = module.double()(given, torch.from_numpy(EDGES), *more)
    return found


@pytest.mark.parametrize(
    ("name", "grid"), by_turns(list(inputs(FILE)), [(2, 2), (2, 1), (1, 2), (1, 1)])
)
def test_categories_are_exact(tmp_path: Path, name: str, grid: tuple[int, int]) -> None:
    job, module, x, carried = made(tmp_path, name)
    run(job, grid)
    ids, vectors = embertide.read(job.output).to_numpy()
    assert_exact(vectors[np.argsort(ids)], own(module, x, carried))


@pytest.mark.parametrize("value", [10.0, -1.0, 2.5])
def test_a_category_that_the_model_does_not_know(tmp_path: Path, value: float) -> None:
    job, _, x, _ = made(tmp_path, "looked up")
    x[23, 0] = value
    job.write_features(np.arange(NODES), x)
    told = rf"part\.parquet row 23 .*: column 0 .* of node 23 is {value:g}, but .* 0 to 9"
    with pytest.raises(InputError, match=told):
        run(job, (2, 1))


def test_a_category_of_an_edge_that_the_model_does_not_know(tmp_path: Path) -> None:
    job, _, _, carried = made(tmp_path, "bonds")
    carried[5, 1] = 3
    job.write_edges(EDGES[0], EDGES[1], f0=carried[:, 0], f1=carried[:, 1])
    told = r"part\.parquet row 5 .*: feature 1 \('f1'\) of the edge is 3, but .* categories 0 to 2"
    with pytest.raises(InputError, match=told):
        run(job, (2, 2))
