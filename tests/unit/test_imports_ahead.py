"""What a run's processes import before its manifest has been looked at."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from embertide import cli
from embertide.launch.bootstrap import fork_server
from embertide.launch.bootstrap.fork_server import PRELOAD

STORE = "embertide.io.storage.s3"


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that the fork server is started with."""
    found: list[str] = []

    def start(*modules: str, keep: bool) -> AbstractContextManager[None]:
        assert not keep
        found.extend(modules)
        return nullcontext()

    monkeypatch.setattr(fork_server, "fork_server", start)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"output: {uri: s3://shop/embeddings}", [STORE, PRELOAD]),
        (b"output: {uri: /data/embeddings}", [PRELOAD]),
        (b"\xff\xfe no text", [PRELOAD]),
    ],
)
def test_the_client_of_a_store_where_the_manifest_names_one(
    tmp_path: Path, imported: list[str], text: bytes, expected: list[str]
) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_bytes(text)
    with cli._imports_ahead(["run", str(manifest), "--grid", "2x1"]):
        assert imported == expected


def test_what_is_no_file_is_left_to_the_command(imported: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    others = [str(tmp_path), str(tmp_path / "none"), "\0", "x" * 5000]
    # Nobody writes into it: a look would last.
    with cli._imports_ahead(["run", str(pipe), *others]):
        assert imported == [PRELOAD]


def test_other_commands_import_nothing_ahead(imported: list[str]) -> None:
    for args in (["plan", "job.yaml"], ["run", "--help"], []):
        with cli._imports_ahead(args):
            assert imported == []
