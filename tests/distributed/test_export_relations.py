"""Modules that read relations' numbers are exact on grids, with a job that has the relations."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import embertide
from embertide.launch.local import run_job
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.exact import assert_exact
from tests.support.export_texts import module_of
from tests.support.small_job import SmallJob
from tests.support.tiers import by_turns

pytestmark = pytest.mark.distributed

NODES, WIDTH, RELATIONS = 47, 6, 3
RNG = np.random.default_rng(5)
EDGES = [RNG.integers(0, NODES - 5, (2, 90 - 30 * at)) for at in range(RELATIONS)]
WEIGHTS = [RNG.random(len(ends[0])).astype(np.float32) + 0.5 for ends in EDGES]
X = RNG.standard_normal((NODES, WIDTH)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "grid"),
    by_turns(["gine mean", "gine max", "kgat", "several", "masked"], [(2, 2), (1, 1)]),
)
def test_numbers_of_relations_are_exact(tmp_path: Path, name: str, grid: tuple[int, int]) -> None:
    job = SmallJob.make(tmp_path)
    module, _ = module_of("exports/numbers.txt", name)
    for file in job.model.iterdir():
        file.unlink()
    relations = [f"node:r{at}:node" for at in range(RELATIONS)]
    embertide.export(module, job.model, graph={"nodes": {"node": WIDTH}, "edges": relations})
    job.write_features(np.arange(NODES), X)
    for at, (ends, weight) in enumerate(zip(EDGES, WEIGHTS, strict=True)):
        job.write_edges(*ends, w=weight)
        (job.folder / f"edges{at}").mkdir()
        job.edges.rename(job.folder / f"edges{at}" / "part.parquet")
    edges = [
        {"name": f"r{at}", "uri": f"edges{at}/", "format": "parquet", "columns": {"weight": "w"}}
        for at in range(RELATIONS)
    ]
    job.write_manifest(input__edges=edges)
    run_job(load_manifest(Path(job.manifest)), grid=GridShape.of(*grid), threads=1)
    ids, vectors = embertide.read(job.output).to_numpy()
    given: dict[str, Any] = {
        "x": torch.from_numpy(X).double(),
        "edge_index": torch.from_numpy(np.concatenate(EDGES, axis=1)),
        "edge_type": torch.cat([torch.full((len(w),), at) for at, w in enumerate(WEIGHTS)]),
        "edge_weight": torch.from_numpy(np.concatenate(WEIGHTS)).double(),
    }
    names = inspect.signature(module.forward).parameters
    with torch.no_grad():
        own = module.double()(**{name: given[name] for name in names})
    assert_exact(vectors[np.argsort(ids)], own)
