"""Of edges in several objects those alone are read that have changed, and the bits are the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.facts.telemetry.format import human_bytes
from embertide.io.versions.layers.seals import from_bytes
from tests.support.refreshed_job import NightlyJob
from tests.support.tiers import later

pytestmark = pytest.mark.distributed

EDGES = "node:edge:node"
FILES = 6


def split(folder: Path) -> None:
    """Put the rows of each parquet file of a folder into several."""
    for path in list(folder.rglob("*.parquet")):
        table = pq.read_table(path)
        cuts = np.linspace(0, len(table), FILES + 1).astype(int)
        for number, (first, last) in enumerate(pairwise(cuts)):
            pq.write_table(table.slice(first, last - first), path.with_name(f"e{number}.parquet"))
        path.unlink()


def nightly(folder: Path, *more: str) -> NightlyJob:
    job = NightlyJob(folder, "--scale", "10", *more)
    split(job.path / "edges")
    split(job.path / "features")
    return job


def change(path: Path) -> None:
    """Other sources of two edges, and one edge fewer."""
    table = pq.read_table(path)
    columns = {name: table[name].to_numpy().copy() for name in table.column_names}
    source = columns[table.column_names[0]]
    source[[3, 8]] = source[[9, 4]]
    pq.write_table(pa.table({name: values[1:] for name, values in columns.items()}), path)


def add(folder: Path) -> None:
    table = pq.read_table(folder / "e2.parquet")
    pq.write_table(
        pa.concat_tables([table.slice(5, 20), table.slice(5, 1)]), folder / "e99.parquet"
    )


def replace_one(folder: Path) -> None:
    (folder / "e99.parquet").unlink()
    change(folder / "e0.parquet")


def rename(folder: Path) -> None:
    (folder / "e3.parquet").rename(folder / "f3.parquet")


def turn(folder: Path) -> None:
    table = pq.read_table(folder / "f3.parquet")
    pq.write_table(table.take(np.arange(len(table))[::-1].copy()), folder / "f3.parquet")


DAYS: list[tuple[str, Callable[[Path], None]]] = [
    ("some edges are others", lambda edges: change(edges / "e2.parquet")),
    ("an object comes, with edges that are there", add),
    ("it goes, and another one changes", replace_one),
    ("an object has another name", rename),
    ("its edges stand in another order", turn),
]


@pytest.mark.parametrize(
    ("grid", "more"),
    later(
        [
            ("1x1", ()),
            ("2x1", ("--ids", "int64", "--weights")),
            ("1x2", ("--conv", "sage", "--weights")),
            ("2x2", ()),
        ],
        ("1x1", ()),
        ("2x1", ("--ids", "int64", "--weights")),
        several=True,
    ),
)
def test_days_on_which_some_objects_change(
    grid: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    job = nightly(tmp_path, *more)
    first = job.night(grid)
    for what, act in DAYS:
        act(job.path / "edges")
        report = job.night(grid)
        assert (what, report["kept"]["graph"]) == (what, [EDGES])
        assert (what, report["kept"]["problems"]) == (what, [])
        assert report["refresh"]["mode"] == "incremental"
        assert report["kept"]["graph_written_bytes"] < report["kept"]["graph_bytes"] / 2
        assert job.same_as_whole(grid)
        assert _counts(report) == _counts(job.whole)
    assert first["kept"]["graph"] == []
    # Most objects are others: all edges are read.
    for number in (0, 1, 2, 4):
        change(job.path / "edges" / f"e{number}.parquet")
    report = job.night(grid)
    assert (report["kept"]["graph"], report["kept"]["problems"]) == ([], [])
    assert job.same_as_whole(grid)


def _counts(report: dict[str, Any]) -> tuple[object, ...]:
    """What a report says of the edges."""
    return report["edges"], report["relations"], report["omissions"]


def test_a_full_run_of_the_same_objects_leaves_what_the_next_one_goes_on_from(
    tmp_path: Path,
) -> None:
    job = nightly(tmp_path, "--conv", "sage")
    report = job.night("1x1")
    assert report["kept"]["graph_bytes"] == job.kept_sizes(job.kept()[0])[2]
    plan = "\n".join(job.planned("1x1"))
    assert human_bytes(report["kept"]["graph_bytes"]) in plan
    assert job.night("1x1", "--force")["kept"]["graph"] == []
    change(job.path / "edges" / "e1.parquet")
    assert job.night("1x1")["kept"]["graph"] == [EDGES]
    assert job.same_as_whole("1x1")


def test_an_object_that_was_written_to_in_place_makes_all_be_read(tmp_path: Path) -> None:
    job = nightly(tmp_path)
    job.night("1x1")
    path = job.path / "edges" / "e1.parquet"
    times, size = path.stat(), path.stat().st_size
    pq.write_table(pq.read_table(path), path)
    assert path.stat().st_size == size
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    change(job.path / "edges" / "e4.parquet")
    report = job.night("1x1")
    assert report["kept"]["graph"] == []
    (warning,) = report["kept"]["problems"]
    assert warning.endswith("was touched after it was read")
    assert job.same_as_whole("1x1")
    change(job.path / "edges" / "e4.parquet")
    assert job.night("1x1")["kept"]["graph"] == [EDGES]
    assert job.same_as_whole("1x1")


def test_edges_that_were_kept_as_they_were_read_and_are_damaged_are_read(tmp_path: Path) -> None:
    job = nightly(tmp_path)
    job.night("1x1")
    (kept,) = job.kept()
    for path in (job.path / "embeddings" / "_layers" / kept.key).glob("*.seal.json"):
        name = path.name.removesuffix(".seal.json")
        seal = from_bytes(path.as_uri(), path.read_bytes(), kept.key, name)
        for tensor in seal.tensors if seal.edges else ():
            for block in tensor.blocks if tensor.name == "read" else ():
                own = path.parent / block.path
                data = bytearray(own.read_bytes())
                data[len(data) // 4] ^= 1
                own.write_bytes(data)
    change(job.path / "edges" / "e1.parquet")
    report = job.night("1x1")
    assert report["kept"]["graph"] == []
    (warning,) = report["kept"]["problems"]
    assert warning.endswith("does not match its checksum")
    assert job.same_as_whole("1x1")


def test_edges_that_lead_both_ways_and_have_a_reverse(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--hetero")
    split(job.path / "edges")
    first = job.night("2x1")
    relations = sorted(item["name"] for item in first["relations"])
    for folder in (job.path / "edges").iterdir():
        change(folder / "e1.parquet")
    report = job.night("2x1")
    assert sorted(report["kept"]["graph"]) == relations
    assert report["refresh"]["mode"] == "incremental"
    assert job.same_as_whole("2x1")
    assert _counts(report) == _counts(job.whole)


def test_edges_without_a_direction(tmp_path: Path) -> None:
    job = nightly(tmp_path)
    job.change_job(lambda spec: spec["input"]["edges"][0].update(directed=False))
    job.night("1x1")
    for file in (1, 2):
        change(job.path / "edges" / f"e{file}.parquet")
        report = job.night("1x1")
        assert report["kept"]["graph"] == [EDGES]
        assert job.same_as_whole("1x1")
        assert _counts(report) == _counts(job.whole)
