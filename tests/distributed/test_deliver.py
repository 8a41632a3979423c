"""Parts are delivered by all workers or by none; each knows whose fault it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import read_part
from tests.support.ranks import on_grid
from tests.support.tasks import deliver_parts, write_at_once

pytestmark = pytest.mark.distributed


@pytest.mark.tier(1)
def test_every_rank_learns_of_every_part(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/version"
    for failure, parts in on_grid(2, 1, deliver_parts, [uri, uri]):
        assert failure == ""
        assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]


@pytest.mark.tier(1)
def test_the_one_that_cannot_write_is_to_blame(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    uris = [f"file://{tmp_path}/version", f"file://{tmp_path}/file/version"]
    (first, _), (second, _) = on_grid(2, 1, deliver_parts, uris)
    assert second.startswith(f"OutputError: {uris[1]}/part-00001.parquet cannot be written")
    assert first == f"PeerFailed: worker 1: {second.removeprefix('OutputError: ')}"


def test_many_rows_are_several_parts(tmp_path: Path) -> None:
    """Of a rank with none, one and several parts' rows, in the order of their names."""
    uri = f"file://{tmp_path}/version"
    counts, storage = [8, 0, 3], open_storage(None)
    for failure, parts in on_grid(3, 1, deliver_parts, [uri] * 3, counts):
        assert failure == ""
        assert [part.name for part in parts] == sorted(
            [f"part-00000-{number:05d}.parquet" for number in range(3)]
            + ["part-00001.parquet", "part-00002.parquet"]
        )
        assert [part.rows for part in parts] == [2, 3, 3, 0, 3]
        batches = [batch for part in parts for batch in read_part(storage, uri, part, 2)]
        assert np.concatenate([ids for ids, _ in batches]).tolist() == list(range(11))
        rows = np.concatenate([values for _, values in batches])
        assert rows.tolist() == [[number, number] for number in range(11)]


def test_one_of_several_parts_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    version = tmp_path / "version"
    (version / "part-00000-00002.parquet").mkdir(parents=True)
    (version / "part-00000-00002.parquet" / "in the way").touch()
    ((failure, _),) = on_grid(1, 1, deliver_parts, [f"file://{version}"], [8])
    assert failure.startswith(
        f"OutputError: file://{version}/part-00000-00002.parquet cannot be written"
    )


def test_threads_write_parts_at_once(tmp_path: Path) -> None:
    assert on_grid(1, 1, write_at_once, f"file://{tmp_path}/two", 2) == [True]
    assert on_grid(1, 1, write_at_once, f"file://{tmp_path}/one", 1) == [False]
