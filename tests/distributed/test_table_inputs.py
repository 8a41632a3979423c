"""Every command that reads inputs refuses a table of Delta that holds them, and bytes for ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.commands import Commands, Published
from tests.support.small_job import NODES, WIDTH, SmallJob

pytestmark = pytest.mark.distributed
INPUT = 3


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


def test_a_table_of_delta(commands: Commands, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    job = SmallJob.make(tmp_path / "job")
    assert commands.run("run", job.manifest, "--grid", "1x1", "-q").code == 0
    published = Published(job.output)
    edges, table = pq.read_table(job.edges), job.edges.parent
    job.edges.unlink()
    for half in (edges.slice(0, 5), edges.slice(5)):
        write_deltalake(table, half, mode="append")
    DeltaTable(table).optimize.compact()
    against = str(tmp_path / "reference.parquet")
    for words in (
        ("plan", job.manifest),
        ("run", job.manifest, "--grid", "1x1"),
        ("check", job.manifest, "--against", against),
    ):
        done = commands.run(*words)
        assert done.code == INPUT, done.err
        assert f"belongs to a Delta table: file://{table}/_delta_log/ is its" in done.message
    published.check_untouched()


def test_ids_in_latin_1(commands: Commands, tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path / "job")
    names = [f"café {i}" for i in range(NODES)]
    job.write_features(names, np.ones((NODES, WIDTH)))
    held = pa.array([name.encode("latin-1") for name in names], pa.binary()).view(pa.string())
    job.write_edges(held, held)
    job.write_manifest(input__nodes__0__ids="string")
    done = commands.run("run", job.manifest, "--grid", "2x1")
    assert done.code == INPUT, done.err
    assert f"{job.edges} row 0 (from 0): column 'src' (columns.source) is" in done.message
    assert r"b'caf\xe9 0', whose byte 3 (from 0) is not UTF-8" in done.message
    assert not job.output.exists()
