"""``embertide init``: a job for the edges that a user has."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import embertide
from tests.support.commands import Commands, Done

pytestmark = pytest.mark.distributed

TEXT = "".join(f"u{at % 7}\ti{at * 3 % 11}\t0.5\n" for at in range(40))


def run(*words: str) -> Done:
    """The command, in the folder that we are in."""
    return Commands(Path.cwd()).run("init", *words, folder=Path.cwd())


def files(at: Path) -> Path:
    """Edges as people have them."""
    pairs = {"src": [0, 1, 2, 3], "dst": [1, 2, 3, 0]}
    pq.write_table(pa.table(pairs | {"W": [1.0, 2, 3, 4]}), at / "counted.parquet")
    pq.write_table(pa.table({"id": [1, 2], "a": [7, 90], "b": [900, 7]}), at / "far.parquet")
    (at / "named.csv.gz").write_bytes(gzip.compress(b"from,to\nx,y\ny,z\n"))
    (at / "bare.tsv").write_text(TEXT)
    np.save(at / "pairs.npy", np.array([[0, 1], [1, 3]]))
    return at


@pytest.mark.parametrize(
    ("words", "printed", "rows"),
    [
        (["counted.parquet"], "4 edges from src to dst, weight W; 4 nodes (dense ids)", 4),
        (
            ["far.parquet", "--columns", "a,b"],
            "2 edges from a to b, no weights; 3 nodes (int64 ids)",
            3,
        ),
        (["named.csv.gz"], "2 edges from from to to, no weights; 3 nodes (string ids)", 3),
        (["pairs.npy", "--fastrp"], "2 edges from 0 to 1, no weights; 4 nodes (dense ids)", 4),
        (
            ["bare.tsv", "--types", "user,item"],
            "40 edges from 0 to 1, no weights; 7 users (string ids), 11 items (string ids)",
            7,
        ),
    ],
)
def test_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], printed: str, rows: int
) -> None:
    monkeypatch.chdir(files(tmp_path))
    done = run(*words, "--to", "job")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{printed}\nRun it: embertide run {tmp_path}/job/job.yaml\n"
    embertide.run("job/job.yaml")
    types = {"node_type": "user"} if "--types" in words else {}
    ids, vectors = embertide.read("job/embeddings", **types).to_numpy()
    assert vectors.shape == (rows, 128)
    assert len(set(ids)) == rows
    # 2 is between the ids of the array and has no edges.
    alone = [2] if "pairs.npy" in words else []
    assert ids[np.abs(vectors).max(axis=1) == 0].tolist() == alone


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["far.parquet", "--columns", "a,c"], "no column 'c'; its columns are id, a, b"),
        (["far.parquet", "--weight", "w"], "no column 'w'; its columns are id, a, b"),
        (["nowhere.parquet"], "nowhere.parquet does not exist"),
        (["notes.txt"], "notes.txt is neither parquet, csv, tsv nor npy by its name; name it so"),
        (["empty.parquet"], "empty.parquet has no edges"),
        (["narrow.csv"], "narrow.csv has no two columns; its columns are a"),
    ],
)
def test_what_has_no_edges_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(files(tmp_path))
    Path("notes.txt").write_text("a note")
    Path("narrow.csv").write_text("a\n1\n")
    pq.write_table(pa.table({"src": pa.array([], "int64"), "dst": pa.array([], "int64")}),
                   "empty.parquet")  # fmt: skip
    done = run(*words)
    assert done.code != 0
    assert message in done.err
    assert not Path("job.yaml").exists()


def test_a_job_that_is_there_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files(tmp_path))
    Path("job.yaml").write_text("mine")
    done = run("counted.parquet")
    assert done.code != 0
    assert "job.yaml is there; remove it, or name another folder with --to" in done.err
    assert Path("job.yaml").read_text() == "mine"
    wrong = run("counted.parquet", "--types", "a", "--to", "other")
    assert wrong.code != 0
    assert "--types is 'a'; give two names, such as a,b" in wrong.err
