"""Of edges in several objects those alone are read that have changed, and the bits are the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
