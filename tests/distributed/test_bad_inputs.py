"""Bad input gets an error that says what, where and what to do, and loses nothing.

Every case runs the real command on a small job that has a version published, and spoils one
thing. Those in the first table are found before any worker starts. What the command says and how
it ends is ``tests/expected/bad_inputs.txt``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.commands import Commands, Published
from tests.support.expected import Expected
from tests.support.small_job import NODES, WIDTH, SmallJob

RING = np.arange(NODES)
VALUES = np.ones((NODES, WIDTH))


@dataclass(frozen=True)
class Case:
    """What is spoilt, and the options of the run."""

    spoil: Callable[[SmallJob], object]
    argv: tuple[str, ...] = ("--grid", "1x1")


def _hundred_bytes_less(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _as_csv(path: Path) -> None:
    path.write_text("src,dst\n0,1\n")


def _integers(path: Path) -> None:
    pq.write_table(pa.table({"src": RING.astype(str), "dst": RING}), path)


def _second_edge_type(job: SmallJob) -> None:
    edge = {"name": "likes", "uri": "edges/", "format": "parquet"}
    job.write_manifest(input__edges__1=edge)


def _second_node_type(job: SmallJob) -> None:
    job.write_manifest(input__nodes__1={"name": "user", "count": 3})


def _renamed_weight(job: SmallJob) -> None:
    from safetensors.numpy import load_file, save_file

    path = job.model / "weights.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.startswith("layers.1.") and "weight" in name)
    tensors[name.replace("weight", "wait")] = tensors.pop(name)
    save_file(tensors, path)


def _misshapen_weight(job: SmallJob) -> None:
    from safetensors.numpy import load_file, save_file

    path = job.model / "weights.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.startswith("layers.0.") and "bias" in name)
    tensors[name] = np.zeros(WIDTH + 3, np.float32)
    save_file(tensors, path)


class Trap:
    """Unpickling it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


def _pickle(job: SmallJob) -> None:
    import torch

    (job.model / "weights.safetensors").unlink()
    torch.save({"layers.0.weight": Trap(job.folder / "sprung")}, job.model / "weights.pt")


EARLY = {
    "missing object": Case(
        lambda job: job.write_manifest(input__edges__0__uri="edges/gone.parquet")
    ),
    "missing prefix": Case(lambda job: shutil.rmtree(job.folder / "features")),
    "empty prefix": Case(lambda job: job.edges.rename(job.edges.with_name("_part.parquet"))),
    "missing model": Case(lambda job: shutil.rmtree(job.model)),
    "csv as parquet": Case(lambda job: _as_csv(job.edges)),
    "parquet as csv": Case(lambda job: job.write_manifest(input__edges__0__format="csv")),
    "truncated parquet": Case(lambda job: _hundred_bytes_less(job.features)),
    "missing column": Case(
        lambda job: job.write_manifest(input__edges__0__columns={"source": "from"})
    ),
    "wrong type": Case(lambda job: _integers(job.edges)),
    "width of the model": Case(lambda job: job.write_model(WIDTH + 1)),
    "missing weight": Case(_renamed_weight),
    "wrong shape": Case(_misshapen_weight),
    "pickled weights": Case(_pickle),
    "more workers than nodes": Case(lambda _job: None, ("--grid", "13x1")),
    "feature axis beyond the width": Case(lambda _job: None, ("--grid", "1x5")),
    "less memory than planned": Case(lambda _job: None, ("--grid", "1x1", "--memory", "330MiB")),
    "fanout of another length": Case(lambda job: job.write_manifest(inference__fanout=[3, 3, 3])),
    "output is an input": Case(lambda job: job.write_manifest(output__uri="features/")),
    "two edge types": Case(_second_edge_type),
    "two node types": Case(_second_node_type),
    "no gpu": Case(lambda _job: None, ("--grid", "12x1", "--device", "cuda")),
}


def _with_rows(job: SmallJob, ids: list[int], change: Callable[[np.ndarray], object]) -> None:
    values = np.ones((len(ids), WIDTH), np.float32)
    change(values)
    job.write_features(ids, values)


def _nan_and_inf(values: np.ndarray) -> None:
    values[5, 1], values[9, 0] = np.nan, np.inf


def _unknown_string(job: SmallJob) -> None:
    names = [f"n{i}" for i in range(NODES)]
    job.write_features(names, VALUES)
    job.write_edges(names, [*names[1:-1], "n99", "n0"])
    job.write_manifest(input__nodes__0__ids="string")


def _unknown_int64(job: SmallJob) -> None:
    job.write_features(RING * 10, VALUES)
    job.write_edges(RING * 10, np.where(RING == 7, 71, RING * 10))
    job.write_manifest(input__nodes__0__ids="int64")


def _dense_edge(job: SmallJob, row: int, value: int) -> None:
    job.write_edges(np.where(row == RING, value, RING), RING)


def _no_node(job: SmallJob) -> None:
    job.write_features([*range(NODES), 40], np.ones((NODES + 1, WIDTH)))
    job.write_manifest(input__nodes__0__count=NODES)


def _ragged(job: SmallJob) -> None:
    job.write_features(RING, [np.ones(3 if i == 4 else WIDTH) for i in range(NODES)])


TWO = ("--grid", "2x1")
LATE = {
    "text in csv": Case(lambda job: job.write_csv("src,dst\n0,1\n1,2\nx7,3\n")),
    "negative id": Case(lambda job: _dense_edge(job, 3, -1)),
    "id out of range": Case(lambda job: _dense_edge(job, 8, NODES), TWO),
    "edge of an unknown int64": Case(_unknown_int64, TWO),
    "edge of an unknown string": Case(_unknown_string),
    "features of an unknown node": Case(_no_node),
    "features beyond the count of rows": Case(
        lambda job: job.write_features([*range(NODES - 1), 40], VALUES)
    ),
    "features twice by int64": Case(
        lambda job: (
            job.write_features([*range(NODES - 1), 7], VALUES),
            job.write_manifest(input__nodes__0__ids="int64"),
        )
    ),
    "node without features": Case(
        lambda job: (
            job.write_features(RING[:-2], VALUES[:-2]),
            job.write_manifest(input__nodes__0__count=NODES),
        )
    ),
    "duplicate features": Case(
        lambda job: _with_rows(job, [0, 1, 2, 3, 4, 4, 6, 7, 8, 9, 10, 11], lambda _values: None),
        TWO,
    ),
    "nan and inf": Case(lambda job: _with_rows(job, list(RING), _nan_and_inf)),
    "ragged vectors": Case(_ragged),
    "overflowing embeddings": Case(lambda job: job.write_model(WIDTH, scale=1e30), TWO),
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> SmallJob:
    job = SmallJob.make(tmp_path_factory.mktemp("good"))
    done = commands.run("run", job.manifest, "--grid", "2x1", "--quiet")
    assert done.code == 0, done.err
    assert done.err == ""
    return job


@pytest.fixture
def job(good: SmallJob, tmp_path: Path) -> SmallJob:
    return good.copy(tmp_path / "job")


CASES = EARLY | LATE


@pytest.mark.distributed
@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, commands: Commands, job: SmallJob, expected: Expected) -> None:
    case = CASES[name]
    published = Published(job.output)
    case.spoil(job)
    done = commands.run("run", job.manifest, *case.argv)
    assert ("embertide: features " in done.err) == (name in LATE)
    published.check_untouched()
    assert not (job.folder / "sprung").exists()
    found = done.message.replace(str(job.folder), "<job>")
    found = re.sub(r"has \d+ CUDA devices", "has <some> CUDA devices", found)
    expected.check("bad_inputs.txt", name, f"exit code {done.code}\n{found}", CASES)
