"""Objects as files: a hidden file is written, synced and renamed, so readers never see half of it.

URIs are taken as they are written, without percent-decoding. Directories are created and
removed with their files, as prefixes are in S3.
"""

from __future__ import annotations

import io
import os
import shutil
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from embertide.errors import InputChanged, ObjectMissing, StorageError
from embertide.facts.telemetry.transfers import TransferStats
from embertide.io.storage.file_lock import locked
from embertide.io.storage.full_disk import FullDisk
from embertide.io.storage.local_errors import UNFINISHED, reading, to_path, writing
from embertide.io.storage.local_files import FileSink, etag_of, sync, uri_of
from embertide.io.storage.protocol import (
    CHANGED,
    GONE,
    NAMES_AT_ONCE,
    Listing,
    ObjectInfo,
    OnRetry,
    OnUpload,
    Span,
)
from embertide.spec.storage import Store


def open_store(_settings: Store, _on_retry: OnRetry, _on_upload: OnUpload) -> LocalStore:
    """A store of local files, which has no settings; see :mod:`embertide.spec.schemes`."""
    return LocalStore()


class LocalStore:
    """``file:///absolute/path``; see :class:`embertide.io.storage.protocol.Storage`.

    Directories that it made go again once they are empty; those that were there before stay,
    except for the one that held a removed file.
    """

    def __init__(self) -> None:
        self._made: set[Path] = set()
        self._full_disk = FullDisk()

    @property
    def stats(self) -> TransferStats:
        """Always zero: what a network file system transfers is not known here."""
        return TransferStats()

    def list_folders(self, uri: str) -> list[str]:
        """Names of the directories directly below ``uri``, sorted; none if it does not exist."""
        path = to_path(uri)
        with reading(uri):
            return sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []

    def names(self, folder: str, start: str = "") -> list[str]:
        """Entries of a directory; links to directories count as such."""
        return self.all_names(folder, start)[:NAMES_AT_ONCE]

    def all_names(self, folder: str, start: str = "") -> list[str]:
        """Entries of a directory; links to directories count as such."""
        path = to_path(folder)
        with reading(folder), suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(path) as entries:
                found = [
                    f"{entry.name}/" if entry.is_dir() else entry.name
                    for entry in entries
                    if entry.name.startswith(start)
                ]
            return sorted(found)
        return []

    def list(self, uri: str, *, hidden: bool = False) -> list[ObjectInfo]:
        """One file, or all files below a directory; links are followed."""
        path = to_path(uri)
        with reading(uri):
            one = _info(path)
            found = [one] if one else list(_infos(_files(path, hidden)))
        if not found:
            raise _nothing_in(uri)
        return sorted(found, key=lambda info: info.uri)

    def scan(self, uri: str) -> Listing:
        """One file, or all files below a directory; hidden directories are not opened."""
        path = to_path(uri)
        hidden: list[str] = []
        with reading(uri):
            one = _info(path)
            objects = [one] if one else list(_infos(_files(path, False, hidden)))
        if not objects and not hidden:
            raise _nothing_in(uri)
        return Listing(sorted(objects, key=lambda info: info.uri), sorted(hidden))

    def stat(self, uri: str) -> ObjectInfo | None:
        """Size and tag of a file; None for a directory, or where nothing exists."""
        with reading(uri):
            try:
                return _info(to_path(uri))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read(self, uri: str) -> bytes:
        """All bytes of the file."""
        with reading(uri):
            return to_path(uri).read_bytes()

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes of the file from byte ``start``."""
        with reading(uri), to_path(uri).open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)

    def read_into(self, uri: str, buffer: memoryview, spans: Sequence[Span] = ()) -> int:
        """Fill a buffer with parts of a file, one after another; the size of the file in bytes."""
        with reading(uri), to_path(uri).open("rb", buffering=0) as file:
            size, number, at = os.fstat(file.fileno()).st_size, file.fileno(), 0
            for start, stop in spans or [(0, min(size, len(buffer)))]:
                end = at + stop - start
                while at < end and (more := os.preadv(number, [buffer[at:end]], stop - end + at)):
                    at += more
                if at < end:
                    return stop - end + at
            return size

    def open(
        self,
        uri: str,
        info: ObjectInfo | None = None,
        spans: Sequence[Span] = (),  # noqa: ARG002
    ) -> BinaryIO:
        """The file itself; the system reads ahead.

        Raises:
            InputChanged: it is not in the state of ``info`` any more, or gone; also as the block
                ends.
        """
        try:
            with reading(uri):
                file = _Watched(to_path(uri), uri, info)
        except ObjectMissing as error:
            if info is None:
                raise
            raise InputChanged(GONE.format(uri=uri)) from error
        if file.changed:
            file.close()
            raise InputChanged(CHANGED.format(uri=uri))
        return file

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """Write a hidden file beside it, then rename that into place."""
        sink = self._sink(uri)
        try:
            sink.write(data)
            return sink.commit()
        finally:
            sink.remove()

    def write_soon(self, uri: str, data: bytes | memoryview) -> None:
        """Write as :meth:`write` does; the disk is asked to begin, and not waited for."""
        sink = self._sink(uri)
        try:
            sink.write(data)
            sink.show()
        finally:
            sink.remove()

    def settle(self, uris: Iterable[str]) -> None:
        """Wait for the disk, file by file, then for the names in their directories."""
        folders: dict[Path, str] = {}
        for uri in uris:
            path = to_path(uri)
            with writing(uri):
                sync(path)
            folders[path.parent] = uri
        for folder, uri in folders.items():
            with writing(uri):
                sync(folder)

    @contextmanager
    def create(self, uri: str) -> Iterator[BinaryIO]:
        """A hidden file, renamed into place when the block ends cleanly."""
        sink = self._sink(uri)
        try:
            yield cast(BinaryIO, sink)
            sink.commit()
        finally:
            sink.remove()

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """Compare and write under a lock beside the file, which every writer here takes."""
        with self._locked(uri):
            current = self.stat(uri)
            if (current.etag if current else None) != expected:
                return False
            self.write(uri, data)
            return True

    def free_bytes(self, uri: str) -> int | None:
        """Free bytes of the file system, as far as this user may have them."""
        path = to_path(uri)
        with reading(uri):
            there = next(folder for folder in (path, *path.parents) if folder.exists())
            return shutil.disk_usage(there).free

    def making_room(
        self,
        uri: str,  # noqa: ARG002
        give_back: Callable[[], object],
    ) -> AbstractContextManager[None]:
        """All that is written meanwhile, wherever that is."""
        return self._full_disk.making_room(give_back)

    def try_upload(self, uri: str) -> None:
        """Nothing: a large file is written as a small one is."""

    def delete(self, uris: Iterable[str]) -> None:
        """Remove files, and each directory that becomes empty."""
        for uri in uris:
            path = to_path(uri)
            with writing(uri), suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
            self._remove_empty(path.parent)

    def unfinished(self, folder: str) -> Sequence[str]:
        """Hidden files that `create` left, or is writing."""
        return sorted(uri_of(path) for path in to_path(folder).rglob(f".*{UNFINISHED}"))

    def sweep(self, folder: str, begun: Iterable[str] = ()) -> None:  # noqa: ARG002
        """Remove hidden files that `create` left, and the directory if it becomes empty."""
        path = to_path(folder)
        with writing(folder):
            for hidden in path.glob(f".*{UNFINISHED}"):
                hidden.unlink(missing_ok=True)
        self._remove_empty(path)

    def _sink(self, uri: str) -> FileSink:
        self._make_directory(uri)
        return FileSink(uri, self._full_disk)

    @contextmanager
    def _locked(self, uri: str) -> Iterator[None]:
        """Hold a lock beside the object: a hidden file that goes with the lock.

        Not the directory itself, since over NFS a lock needs a file that is open for writing.
        """
        path = to_path(uri)
        self._make_directory(uri)
        with ExitStack() as stack:
            with writing(uri):
                lock = path.with_name(f".{path.name}.lock")
                self._full_disk.tried(lambda: stack.enter_context(locked(lock)))
            yield

    def _make_directory(self, uri: str) -> None:
        """The one that the object is in, and those above it."""
        folder = to_path(uri).parent
        with writing(uri):
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            self._full_disk.tried(lambda: folder.mkdir(parents=True, exist_ok=True))
        self._made.update(missing)

    def _remove_empty(self, folder: Path) -> None:
        """Remove an empty directory, and those above it that were made here."""
        # Not empty, or gone already: both are fine.
        with suppress(OSError):
            folder.rmdir()
            while folder.parent in self._made:
                folder = folder.parent
                folder.rmdir()


class _Watched(io.BufferedReader):
    """A file that is to stay in the state in which it was listed, while it is read.

    A file that is replaced by another of its name is read to its end; one that is written to would
    be read in part as it was and in part as it is.
    """

    def __init__(self, path: Path, uri: str, info: ObjectInfo | None) -> None:
        super().__init__(io.FileIO(path))
        self._uri, self._info = uri, info

    @property
    def changed(self) -> bool:
        """Whether it has been written to since it was listed."""
        return self._info is not None and etag_of(os.fstat(self.fileno())) != self._info.etag

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # What cannot be read is perhaps only half written.
        asked = error is None or isinstance(error, Exception)
        changed = asked and not self.closed and self.changed
        super().__exit__(kind, error, trace)
        if changed:
            raise InputChanged(
                f"{self._uri} changed while it was read; run the job again when nothing writes to"
                " it"
            ) from error


def _info(path: Path) -> ObjectInfo | None:
    """None for a directory; an OSError when there is nothing."""
    return None if modes.S_ISDIR(path.stat().st_mode) else _file_info(path)


def _file_info(path: Path) -> ObjectInfo:
    status = path.stat()
    if not modes.S_ISREG(status.st_mode):
        raise StorageError(f"{uri_of(path)} is a device, pipe or socket, not a file; use files")
    # A copy may keep the times of its original, and a rename changes no times but this one.
    modified = max(status.st_mtime, status.st_ctime)
    return ObjectInfo(uri_of(path), status.st_size, etag_of(status), modified)


def _nothing_in(uri: str) -> ObjectMissing:
    return ObjectMissing(
        f"{uri} is a directory without files (names that begin with '_' or '.' do not "
        "count); check the path"
    )


def _infos(files: Iterable[Path]) -> Iterator[ObjectInfo]:
    for file in files:
        try:
            yield _file_info(file)
        except FileNotFoundError:
            # Those who write hidden files rename or remove them at any moment.
            if _is_visible(file.name):
                raise


def _is_visible(name: str) -> bool:
    return name[0] not in "_."


def _files(top: Path, hidden: bool, skipped: list[str] | None = None) -> Iterator[Path]:
    """Files below a directory; URIs of hidden names that are left out are added to ``skipped``."""

    def fail(error: OSError) -> None:
        raise error

    def wanted(name: str) -> bool:
        return hidden or _is_visible(name)

    # Links are followed, since skipping a linked directory would lose data in silence; a loop
    # of links ends in an error.
    for folder, folders, files in os.walk(top, followlinks=True, onerror=fail):
        if skipped is not None:
            skipped += [f"{uri_of(Path(folder, name))}/" for name in folders if not wanted(name)]
            skipped += [uri_of(Path(folder, name)) for name in files if not wanted(name)]
        folders[:] = filter(wanted, folders)
        yield from (Path(folder, name) for name in filter(wanted, files))
