"""Temporary folders that a killed process leaves: the next run removes them.

Nothing runs in a process that is killed by SIGKILL, so its folders stay. Each of ours holds a file
that its process has locked; the system releases that lock when the process ends, however it ends.
A folder whose lock is free belongs to no process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import process, util
from pathlib import Path
from typing import BinaryIO

from embertide.errors import OutputError
from embertide.io.storage.file_lock import lock_now, locked

RUN_PREFIX, SOCKETS_PREFIX, OUTPUT_PREFIX = "embertide-run-", "embertide-mp-", "embertide-output-"
_LOCK = "in-use"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, which is removed at the end, or by the next run if this process is killed.

    Raises:
        OutputError: no temporary folder can be made.
    """
    path, lock = _new_folder(RUN_PREFIX)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        lock.close()


def keep_sockets_in_own_folder() -> None:
    """Let multiprocessing make its sockets in a folder that does not outlive this process for long.

    One for the process's lifetime, as multiprocessing's own is, which stays after a kill.

    Raises:
        OutputError: no temporary folder can be made.
    """
    config = process.current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is not None:
        return
    path, lock = _new_folder(SOCKETS_PREFIX)
    # After everything that uses the sockets, as in multiprocessing.
    util.Finalize(None, _remove, args=(path, lock), exitpriority=-100)
    config["tempdir"] = str(path)


def _remove(path: Path, lock: BinaryIO) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock.close()


def _new_folder(prefix: str) -> tuple[Path, BinaryIO]:
    """A folder that is in use, after removing those that are not."""
    try:
        place = Path(tempfile.gettempdir())
        # Otherwise somebody could find our folder before its lock is held.
        with locked(place / f"embertide-{os.getuid()}.lock"):
            remove_unused(place)
            path = Path(tempfile.mkdtemp(prefix=prefix))
            lock = lock_now(path / _LOCK)
    except OSError as error:
        raise OutputError(
            f"no temporary folder can be made: {error.strerror}; set TMPDIR to one with space"
        ) from error
    assert lock is not None
    return path, lock


def remove_unused(place: Path) -> None:
    """Remove this user's folders and lock files whose process has ended."""
    mine = os.getuid()
    for prefix in (RUN_PREFIX, SOCKETS_PREFIX, OUTPUT_PREFIX):
        for path in place.glob(f"{prefix}*"):
            # Other processes come and go, and remove their own.
            with suppress(FileNotFoundError, NotADirectoryError):
                if path.lstat().st_uid == mine and not path.is_symlink():
                    _remove_if_unused(path)


def _remove_if_unused(path: Path) -> None:
    lock = lock_now(path / _LOCK if path.is_dir() else path)
    if lock is None:
        return
    with lock:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
