"""Synthetic jobs, of which each is made once for all tests of a process."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from tests.support.commands import Running
from tests.support.patience import WAIT_SECONDS


def make_synthetic(folder: Path, *words: str) -> Path:
    """The job that ``embertide synth FOLDER WORDS...`` makes; its manifest.

    Args:
        folder: a new one. Files are copies, as old as if they had just been made.
    """
    made = _made(words)
    shutil.copytree(made, folder, copy_function=shutil.copy)
    manifest = folder / "job.yaml"
    manifest.write_text(manifest.read_text().replace(made.as_uri(), folder.as_uri()))
    return manifest


@functools.cache
def _made(words: tuple[str, ...]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="em-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Running(folder, "synth", str(folder / "job"), "--quiet", *words)
    assert made.done(WAIT_SECONDS).code == 0
    return folder / "job"
