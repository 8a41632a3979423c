"""Runs with ``output.delta``: on every grid, deltas lead from each version to the newest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embertide.engine.planning.estimate import estimate_job
from embertide.facts.report import draw_page
from embertide.io.storage.opening import open_storage
from embertide.io.versions.manifest import read_manifest, types_in
from embertide.spec.delta import Delta
from tests.distributed.test_compared_runs import comparison_of, rows_of, run, with_output
from tests.support.chained import apply
from tests.support.compared import Rows
from tests.support.job_files import WIDTH, write_job
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(("ids", "tolerance"), [("int64", 0.0), ("string", 0.05)])
def test_readers_of_deltas_have_the_newest_version(
    tmp_path: Path, ids: str, tolerance: float
) -> None:
    storage, graph = open_storage(None), make_graph()
    files = write_job(tmp_path, graph, make_features(WIDTH), ids=ids)
    uri = files.job.spec.output.uri
    readers: list[Rows] = []
    upserts = []
    for night, grid in enumerate([(1, 1), (2, 2), (3, 1), (2, 1)]):
        features = make_features(WIDTH)
        features[:6] += np.float32(0.01) * night
        other = write_job(tmp_path / f"night-{night}", graph, features, ids=ids)
        delta = Delta(tolerance=tolerance)
        report = run(with_output(other, uri=uri, delta=delta), grid)
        (size,) = [of_type.delta for of_type in comparison_of(report).types]
        assert size is not None
        newest = rows_of(files, report.version)
        if night == 0:
            assert size.why == "there is no version before"
        else:
            (entry,) = types_in(read_manifest(storage, uri, report.version)[0])
            assert entry.delta is not None
            assert size.upserts == entry.delta["upsert"]["rows"]
            upserts.append(size.upserts)
            assert any("delta " in line for line in comparison_of(report).sentences)
            page = draw_page(report, read_manifest(storage, uri, report.version)[0])
            assert size.sentence(NODES) in page
            planned = estimate_job(with_output(other, uri=uri, delta=delta).job)
            assert any(f"that of {report.version} has" in note for note in planned.notes)
        readers = [apply(storage, uri, report.version, reader) for reader in readers]
        for reader in readers:
            assert reader.keys() == newest.keys()
            for name, vector in newest.items():
                exact = reader[name].astype(np.float64) - vector.astype(np.float64)
                assert np.linalg.norm(exact) <= tolerance
                if tolerance == 0:
                    assert reader[name].tobytes() == vector.tobytes()
        readers.append(newest)
    assert all(0 < count < NODES for count in upserts) or tolerance > 0
