"""Parts are delivered by all workers or by none; each knows whose fault it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import on_grid
from tests.support.tasks import deliver_parts

pytestmark = pytest.mark.distributed


def test_every_rank_learns_of_every_part(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/version"
    for failure, parts in on_grid(2, 1, deliver_parts, [uri, uri]):
        assert failure == ""
        assert [part.name for part in parts] == ["part-00000.parquet", "part-00001.parquet"]


def test_the_one_that_cannot_write_is_to_blame(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    uris = [f"file://{tmp_path}/version", f"file://{tmp_path}/file/version"]
    (first, _), (second, _) = on_grid(2, 1, deliver_parts, uris)
    assert second.startswith(f"OutputError: {uris[1]}/part-00001.parquet cannot be written")
    assert first == f"PeerFailed: worker 1: {second.removeprefix('OutputError: ')}"
