"""Whole runs whose workers begin with memory that was made ready before them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from embertide.io.storage.opening import open_storage
from embertide.kernels import native
from embertide.kernels.prefault import Prefault, Prefaulted
from embertide.launch.bootstrap import warmup
from embertide.launch.local import run_job
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec.grid import GridShape
from tests.support.job_files import WIDTH, write_job
from tests.support.prefault import MIB, has_huge_files, held
from tests.support.tiers import later
from tests.support.world import make_features, make_graph

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(native.lib is None, reason="torch has its own memory"),
    pytest.mark.skipif(not has_huge_files(), reason="the system has no huge pages for files"),
]

GRAPH = make_graph()


class Watched(Prefault):
    """Tells what it gave, and what of it was left at the end."""

    given: list[Prefaulted]
    left: list[int]

    def stop(self, most: int) -> Prefaulted:
        end = time.monotonic() + 60
        while min(self._sizes) < 16 * MIB:
            assert time.monotonic() < end
            time.sleep(0.01)
        found = super().stop(16 * MIB)
        self.given.append(found)
        return found

    def close(self) -> None:
        self.left.extend(held(file) for file in self._files)
        super().close()


@pytest.mark.parametrize("grid", later([(1, 1), (2, 1), (2, 2)], (2, 1)))
def test_workers_take_it_and_give_it_back(
    grid: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are the files' rows, so that features are summed where they stand without a look-up."""
    files = write_job(tmp_path, GRAPH, make_features(WIDTH), ids="dense", nodes="npy")
    Watched.given, Watched.left = [], []
    monkeypatch.setattr(warmup, "Prefault", Watched)
    monkeypatch.setattr(warmup, "feature_bytes", lambda _inputs: 256 * MIB)
    shape = GridShape.of(*grid)
    run_job(files.job, grid=shape, threads=1)
    (given,) = Watched.given
    assert given.process == os.getpid()
    assert given.sizes == (16 * MIB,) * shape.workers
    assert Watched.left == [0] * shape.workers, "a worker that takes its file gives its pages back"
    program = read_model(open_storage(None), files.job.spec.model.uri)
    reference = run_reference(program, [GRAPH.layer()] * 2, files.features)
    assert float((files.published() - reference).abs().max()) < 1e-5
