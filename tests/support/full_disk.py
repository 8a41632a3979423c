"""A run whose scratch folder gets no room for a file."""

from __future__ import annotations

from pathlib import Path

from embertide.errors import StorageError
from tests.support.commands import Commands

MIB = 1 << 20


def end_without_room(folder: Path, job: Path, memory: int, room: int, needed: int) -> None:
    """Hold that a run ends with a clear error, leaves nothing and publishes nothing.

    Args:
        folder: an empty one.
        memory: of the worker, in MiB, which are given by ``--memory``.
        room: MiB of the largest file that may be made.
        needed: MiB of the one that can't be made.
    """
    output, scratch = job.parent / "embeddings", folder / "scratch"
    before = sorted(output.rglob("*"))
    scratch.mkdir()
    words = ("run", str(job), "--memory", f"{memory}MiB", "--scratch", str(scratch))
    done = Commands(folder).run(*words, file_bytes=room * MIB)
    assert done.code == StorageError.exit_code, done.err[-2000:]
    message = " ".join(done.err.split())
    assert f"scratch folder {scratch}" in message
    assert f"no file of {needed}.0 MiB can be made there" in message
    assert sorted(output.rglob("*")) == before
    assert not list(scratch.iterdir())
