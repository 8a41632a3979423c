"""Local directories go with the files they were made for; abandoned versions go as a whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from embertide.io.storage.opening import open_storage
from embertide.io.versions.retention import remove_old
from embertide.spec.version_names import new_version


def test_directories_that_were_made_go_when_they_are_empty(tmp_path: Path) -> None:
    storage, uri = open_storage(), f"file://{tmp_path}/out/versions/v/_begun"
    storage.write(uri, b"")
    storage.delete([uri])
    assert not any(tmp_path.iterdir())


def test_directories_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    storage, uri = open_storage(), f"file://{tmp_path}/out/versions/v/_begun"
    storage.write(uri, b"")
    storage.delete([uri])
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]


def test_directories_with_others_files_stay(tmp_path: Path) -> None:
    storage, versions = open_storage(), tmp_path / "out" / "versions"
    storage.write(f"file://{versions}/v/_begun", b"")
    (versions / "w").mkdir()
    storage.delete([f"file://{versions}/v/_begun"])
    assert [path.name for path in versions.iterdir()] == ["w"]


def test_an_abandoned_version_goes_with_its_hidden_files(tmp_path: Path) -> None:
    old = new_version(datetime(2020, 1, 1, tzinfo=UTC))
    new = new_version(datetime(2020, 1, 3, tzinfo=UTC))
    for version in (old, new):
        folder = tmp_path / "versions" / version
        folder.mkdir(parents=True)
        (folder / ".0123456789ab.part").write_bytes(b"half")
    remove_old(open_storage(), f"file://{tmp_path}", 1, datetime(2020, 1, 3, 1, tzinfo=UTC))
    assert [path.name for path in (tmp_path / "versions").iterdir()] == [new]
