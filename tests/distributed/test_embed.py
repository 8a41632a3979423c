"""``embertide embed``: some nodes' embeddings as a version has them, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import embertide
from tests.support.commands import Commands, Done

pytestmark = pytest.mark.distributed


class Job:
    """A small job of which a run of one worker has published a version."""

    def __init__(self, folder: Path) -> None:
        self.commands, self.manifest = Commands(folder), str(folder / "job" / "job.yaml")
        size = ("--scale", "8", "--width", "4", "--hidden", "4", "-q")
        assert self.commands.run("synth", str(folder / "job"), *size).code == 0
        assert self.commands.run("run", self.manifest, "--grid", "1x1", "-q").code == 0
        self.output = folder / "job" / "embeddings"
        ids, vectors = embertide.read(self.output).to_numpy()
        self.rows = vectors[np.argsort(ids)]

    def embed(self, *words: str) -> Done:
        return self.commands.run("embed", self.manifest, *words)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("embed"))


@pytest.mark.tier(1)
def test_rows_have_the_bits_of_the_version(job: Job) -> None:
    before = sorted(str(path) for path in job.output.rglob("*"))
    done = job.embed("--ids", "17,42", "--ids", "3,17")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["id"] for row in rows] == [17, 42, 3]
    for row in rows:
        assert np.array_equal(np.array(row["embedding"], np.float32), job.rows[row["id"]])
    assert "3 embeddings over " in done.err
    # Nothing is published, and nothing is left.
    assert sorted(str(path) for path in job.output.rglob("*")) == before


def test_ids_of_a_file_as_csv_and_parquet(job: Job, tmp_path: Path) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("5\n250\n")
    done = job.embed("--ids-from", str(ids), "--format", "csv", "-q")
    assert (done.code, done.err) == (0, "")
    head, *rows = csv.reader(io.StringIO(done.out))
    assert head == ["id", *(f"x{column}" for column in range(job.rows.shape[1]))]
    assert [int(row[0]) for row in rows] == [5, 250]
    assert np.array_equal(np.array(rows, np.float32)[:, 1:], job.rows[[5, 250]])
    out = tmp_path / "some.parquet"
    done = job.embed("--ids-from", str(ids), "--format", "parquet", "-o", str(out), "-q")
    assert done.code == 0, done.err
    table = pq.read_table(out)
    assert table.column("id").to_pylist() == [5, 250]
    assert np.array_equal(np.stack(table.column("embedding").to_numpy()), job.rows[[5, 250]])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--ids", "17,999,-4"), 3, "--ids has 999, -4, but file://"),
        (("--ids", "17,999"), 3, "has no such node among its 256; ask for ids that are there"),
        (("--ids", "seventeen"), 3, "--ids has 'seventeen', but ids of 'node' are whole numbers"),
        (("--ids", "99999999999999999999"), 3, "99999999999999999999"),
        (("--ids-from", "nowhere.txt"), 3, "--ids-from: nowhere.txt cannot be read"),
        (
            ("--ids", "1", "--format", "csv", "-o", "/dev/null/x"),
            6,
            "/dev/null/x cannot be written",
        ),
        (("--ids", "1", "--result", "logits"), 4, "none of the name 'logits'"),
        (("--ids", "1", "--node-type", "user"), 4, "none of type 'user'"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, says: str, job: Job) -> None:
    done = job.embed(*words, "-q")
    assert (done.code, done.out) == (code, "")
    assert says in done.message


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "--ids or --ids-from"), (("--ids", "1", "--format", "parquet"), "needs --out")],
)
def test_words_that_lack_something(words: tuple[str, ...], says: str, job: Job) -> None:
    done = job.embed(*words)
    assert done.code == 2
    assert says in done.err
