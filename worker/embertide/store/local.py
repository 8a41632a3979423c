"""Objects as files. A write goes to a hidden file beside its target, then takes its name."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from embertide.errors import AccessDenied, ObjectMissing, OutputError, StorageError
from embertide.store.storage import ObjectInfo

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


class LocalStore:
    """See :class:`embertide.store.storage.Storage`."""

    def list(self, uri: str) -> list[ObjectInfo]:
        """One file, or all below a directory."""
        path = to_path(uri)
        with _reading(uri):
            if path.is_file():
                return [_info(path)]
            found = [_info(file) for file in _walk(path)] if path.is_dir() else []
        if not found:
            what = "is an empty directory" if path.is_dir() else "does not exist"
            raise ObjectMissing(f"{uri} {what}; expected a file or a directory with files")
        return sorted(found, key=lambda info: info.uri)

    def list_folders(self, uri: str) -> list[str]:  # type: ignore[valid-type]
        """Directories directly below."""
        path = to_path(uri)
        with _reading(uri):
            return sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []

    def stat(self, uri: str) -> ObjectInfo | None:
        """A file, not a directory."""
        path = to_path(uri)
        with _reading(uri):
            return _info(path) if path.is_file() else None

    def read(self, uri: str) -> bytes:
        """The whole file."""
        with _reading(uri):
            return to_path(uri).read_bytes()

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """Part of the file."""
        with self.open(uri) as file:
            file.seek(start)
            return cast(bytes, file.read(length))

    @contextmanager
    def open(self, uri: str, info: ObjectInfo | None = None) -> Iterator[Any]:
        """The file itself."""
        with _reading(uri):
            file = to_path(uri).open("rb")
        with file:
            yield file

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """Beside, then in place."""
        with self.create(uri) as file:
            file.write(data)
        return _info(to_path(uri))

    @contextmanager
    def create(self, uri: str) -> Iterator[BinaryIO]:
        """A hidden file that takes the name in the end."""
        path = to_path(uri)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with _writing(uri):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("xb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            finally:
                with suppress(OSError):
                    draft.unlink(missing_ok=True)

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """Under a lock on the directory, which every writer of this program takes."""
        path = to_path(uri)
        with _writing(uri):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                current = _info(path).etag if path.exists() else None
                if current != expected:
                    return False
                self.write(uri, data)
                return True
            finally:
                os.close(folder)

    def delete(self, uris: Iterable[str]) -> None:
        """Files, and the directories that become empty."""
        for uri in uris:
            path = to_path(uri)
            with _writing(uri):
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    path.parent.rmdir()


def to_path(uri: str) -> Path:
    """``file:///a/b`` -> ``/a/b``."""
    rest = uri.removeprefix("file://")
    if not rest.startswith("/"):
        raise StorageError(f"{uri}: a file needs an absolute path, as in file:///data/edges")
    return Path(unquote(rest) if "%" in rest and not Path(rest).exists() else rest)


def _info(path: Path) -> ObjectInfo:
    stat = path.stat()
    return ObjectInfo(f"file://{path}", stat.st_size, f"{stat.st_mtime_ns}-{stat.st_size}-{stat.st_ino}")


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            yield from _walk(entry)
        elif entry.is_file():
            yield entry


@contextmanager
def _reading(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ObjectMissing(f"{uri} does not exist") from None
    except PermissionError:
        raise AccessDenied(f"{uri} may not be read by this user; check its permissions") from None
    except OSError as error:
        raise StorageError(f"{uri} cannot be read: {error.strerror or error}") from error


@contextmanager
def _writing(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            message = f"{uri} cannot be written: {error.strerror}; free space, then run again"
            raise OutputError(message) from error
        if error.errno in _REFUSED:
            message = f"{uri} may not be written by this user: {error.strerror}"
            raise AccessDenied(f"{message}; check the directory's permissions") from error
        raise OutputError(f"{uri} cannot be written: {error.strerror or error}") from error
