"""The errors of a file system as this project's, each with what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embertide.errors import AccessDenied, ObjectMissing, OutputError, StorageError

UNFINISHED = ".part"
"""How the names of hidden files end that are not complete yet."""

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_DENIED = (errno.EACCES, errno.EPERM)
_ADVICE = {
    errno.ENOSPC: "free space there, or choose another output.uri, then run again",
    errno.EDQUOT: "free space within the quota, or choose another output.uri, then run again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run again",
    errno.EROFS: "the file system is read-only, choose another output.uri",
}


def to_path(uri: str) -> Path:
    """``file:///a/b`` as ``/a/b``.

    Raises:
        StorageError: the path is not absolute.
    """
    rest = uri.removeprefix("file://")
    if not rest.startswith("/"):
        raise StorageError(f"{uri}: a file URI needs an absolute path, such as file:///data/edges")
    return Path(rest)


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Raise the system's errors as this project's, naming the object and what to do."""
    try:
        yield
    except OSError as error:
        at = _elsewhere(uri, error)
        if error.errno in _MISSING:
            raise ObjectMissing(f"{uri} does not exist{at or _nearest(uri)}") from error
        if error.errno in _DENIED:
            raise AccessDenied(
                f"{uri} cannot be read: permission denied{at}; check its permissions"
            ) from error
        raise StorageError(f"{uri} cannot be read: {error.strerror or error}{at}") from error


@contextmanager
def writing(uri: str) -> Iterator[None]:
    """As :func:`reading`, for operations that change the object."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}{_elsewhere(uri, error)}"
        if error.errno in _DENIED:
            raise AccessDenied(
                f"{uri} cannot be written: {reason}; check the directory's permissions, or choose "
                "another output.uri"
            ) from error
        advice = _ADVICE.get(error.errno or 0, "correct the path, or choose another output.uri")
        raise OutputError(f"{uri} cannot be written: {reason}; {advice}") from error


def _elsewhere(uri: str, error: OSError) -> str:
    """`` (path)`` when the error is about another path than the object's or its hidden file's."""
    path, at = to_path(uri), error.filename
    known = at is None or Path(at) == path or (path.parent == Path(at).parent and UNFINISHED in at)
    return "" if known else f" ({at})"


def _nearest(uri: str) -> str:
    there = next(parent for parent in to_path(uri).parents if parent.exists())
    return f"; the nearest existing directory is {there}, check the path"
