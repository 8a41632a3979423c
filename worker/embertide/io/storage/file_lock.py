"""Locks on files: held by a process, released by the system however that process ends.

The process that holds the lock may remove the file, so that no litter stays; one that waited for it
then finds another file of that name, or none, and begins again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def locked(path: Path, on_wait: Callable[[str], None] = lambda _holder: None) -> Iterator[None]:
    """Hold the lock on a file, which is made for it and removed with it.

    A signal whose handler raises ends the waiting.

    Args:
        on_wait: called before every wait with the id of the process that holds the lock; "" in the
            moment before it has written that.

    Raises:
        OSError: the file cannot be made.
    """
    lock = _lock(path, on_wait)
    try:
        # A process that was killed leaves the file, and its id in it.
        os.ftruncate(lock.fileno(), 0)
        lock.write(str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        lock.close()


def lock_now(path: Path) -> BinaryIO | None:
    """The locked file until it is closed; None where another process holds it.

    Raises:
        OSError: the file cannot be made.
    """
    lock = _open(path)
    if _try(lock) and _is_at(lock, path):
        return lock
    lock.close()
    return None


def _lock(path: Path, on_wait: Callable[[str], None]) -> BinaryIO:
    while True:
        lock = _open(path)
        try:
            if not _try(lock):
                on_wait(path.read_text())
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, path):
                return lock
        except FileNotFoundError:
            pass  # Its holder removed it before we could read it.
        except BaseException:
            lock.close()
            raise
        lock.close()


def _open(path: Path) -> BinaryIO:
    # Over NFS a lock needs a file that is open for writing. In a folder that everybody may write
    # to, a link of that name would be somebody's trap.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)


def _try(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(lock: BinaryIO, path: Path) -> bool:
    """Whether the file still has its name: the holder before us may have removed it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    return False
