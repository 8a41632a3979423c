"""A job over files of several tools gives what it gives over plain files: each node is found."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import iter_embeddings
from tests.support.commands import Commands
from tests.support.small_job import NODES, SmallJob
from tests.support.tiers import later

pytestmark = pytest.mark.distributed
LINES = "# made by hand; ids are floats\nsrc;dst\n" + "".join(
    f"{i},0;{(i - 1) % NODES},0\n" for i in range(NODES)
)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


def embeddings(job: SmallJob) -> tuple[list[int], np.ndarray]:
    parts = list(iter_embeddings(open_storage(None), f"file://{job.output}"))
    ids = np.concatenate([np.asarray(part[0]) for part in parts])
    return ids.tolist(), np.concatenate([part[1] for part in parts])


@pytest.mark.parametrize("grid", later(["1x1", "2x1"], "2x1"))
def test_other_types_and_a_dialect(commands: Commands, tmp_path: Path, grid: str) -> None:
    plain = SmallJob.make(tmp_path / "plain")
    plain.write_manifest(input__nodes__0__ids="int64")
    job = plain.copy(tmp_path / "job")
    assert commands.run("run", plain.manifest, "--grid", grid, "-q").code == 0

    held = pq.read_table(job.features)
    ids = pa.array([Decimal(i) for i in held["id"].to_pylist()], pa.decimal128(38, 0))
    texts = pa.array([str(row) for row in held["x"].to_pylist()])
    pq.write_table(pa.table({"id": ids, "x": texts}), job.features)
    (job.features.parent / "README.md").write_text("# Features")
    job.write_csv(
        LINES,
        input__nodes__0__ids="int64",
        input__nodes__0__features__include="*.parquet",
        input__edges__0__delimiter=";",
        input__edges__0__dialect={"comment": "#", "decimal": ",", "encoding": "utf-16"},
    )
    (job.folder / "edges/part.csv").write_text(LINES, encoding="utf-16")
    done = commands.run("run", job.manifest, "--grid", grid, "-q")
    assert done.code == 0, done.err
    expected_ids, expected = embeddings(plain)
    found_ids, found = embeddings(job)
    assert found_ids == expected_ids
    assert np.array_equal(found, expected)
