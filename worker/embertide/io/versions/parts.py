"""Parts, the files of a published version: workers stream rows into them and verify them.

Sizes and checksums are taken from the bytes as they are written, so that reading them back
finds whatever the network or the store has changed.

Their formats are in :mod:`embertide.io.versions.formats`. A version of several node types has a
folder for each, such as ``item/part-00000.parquet``.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128

from embertide.errors import EmbertideError, InputChanged, ObjectMissing, OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.formats.protocol import PartShape, Sink
from embertide.io.versions.keys import key_at, key_words, to_hex
from embertide.io.versions.rows import Ids
from embertide.io.versions.sinks import HashedSink
from embertide.spec.nodes import IdKind
from embertide.spec.output import OutputFormat

PartDtype = Literal["float32", "float16"]
PartIds = Literal["int64", "string"]

PART_BYTES = 128 << 20
"""The most bytes of values in a part: a part is hashed by one thread."""
MOST_WRITERS = 4
"""Parts that a worker writes to local files at once, at most: more hash faster than disks write."""
_READ_BYTES = 256 << 10
"""Bytes of a part that are read back at a time: they are hashed while they are in the cache."""


def count_parts(size_bytes: float) -> int:
    """How many parts there are of a worker's rows whose values take so many bytes."""
    return max(1, math.ceil(size_bytes / PART_BYTES))


@dataclass(frozen=True)
class PartDigest:
    """What was written: object name within the version, rows, bytes and SHA-256 (hex).

    ``ids_*`` describe the second object that npy parts have. ``first_key`` and ``last_key`` are the
    smallest and the largest key of its ids, as :func:`embertide.io.versions.keys.to_hex` writes
    them; "" of a part without rows, or whose rows are in another order.
    """

    name: str
    rows: int
    size: int
    sha256: str
    ids_name: str | None = None
    ids_size: int = 0
    ids_sha256: str = ""
    first_key: str = ""
    last_key: str = ""

    def within(self, folder: str) -> PartDigest:
        """The same part, named from the folder above; "" for the one it is in."""
        if not folder:
            return self
        ids_name = None if self.ids_name is None else f"{folder}/{self.ids_name}"
        return replace(self, name=f"{folder}/{self.name}", ids_name=ids_name)

    def objects(self) -> list[tuple[str, int, str]]:
        """(name, size in bytes, SHA-256) of each object of the part."""
        found = [(self.name, self.size, self.sha256)]
        if self.ids_name is not None:
            found.append((self.ids_name, self.ids_size, self.ids_sha256))
        return found


class PartWriter:
    """Streams ``rows`` rows into one part; use it in a ``with``, then see :attr:`digest`.

    The objects appear when the block ends well. After an exception nothing stays visible.

    Args:
        uri: where the part goes, without extension.
        width: D, the length of an embedding; 0 for ids alone, in parquet.
        rows: how many rows will be written (npy names them first); 0 makes a valid empty part.
        keys: kind of the ids, by whose keys the rows ascend; None: the digest has no keys.

    Raises:
        OutputError, StorageError: the part cannot be written.
    """

    def __init__(
        self,
        storage: Storage,
        uri: str,
        *,
        format: OutputFormat,
        dtype: PartDtype,
        ids_kind: PartIds,
        width: int,
        rows: int,
        keys: IdKind | None = None,
    ) -> None:
        self._storage, self._uri, self._format = storage, uri, FORMATS[format]
        self._dtype, self._written = np.dtype(dtype), 0
        self._shape = PartShape(ids_kind, self._dtype, width, rows)
        self._streams = ExitStack()
        self._objects: dict[str, HashedSink] = {}
        self._sinks: list[Sink] = []
        self._digest: PartDigest | None = None
        self._kind, self._first_key, self._last_key = keys, "", ""

    @property
    def digest(self) -> PartDigest:
        """What was written; known after the ``with`` block."""
        assert self._digest is not None, "the part is not complete"
        return self._digest

    def __enter__(self) -> Self:
        try:
            self._sinks = self._format.sinks(self._create, self._shape)
        except BaseException as error:
            self._abandon(error)
            raise
        return self

    def _create(self, suffix: str) -> HashedSink:
        uri = f"{self._uri}{suffix}"
        sink = HashedSink(self._streams.enter_context(self._storage.create(uri)))
        self._objects[uri] = sink
        return sink

    def write(self, ids: Ids, values: npt.NDArray[np.float32]) -> None:
        """Append rows: n ids and ``float32 [n, D]``.

        Raises:
            OutputError: a value is too large for float16, or the store is full.
        """
        assert values.shape == (len(ids), self._shape.width)
        converted = self._converted(ids, values)
        for sink in self._sinks:
            sink.write(ids, converted)
        self._written += len(values)
        if self._kind is not None and len(values):
            self._first_key = self._first_key or _key_of(ids[:1], self._kind)
            self._last_key = _key_of(ids[-1:], self._kind)

    def _converted(self, ids: Ids, values: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        if self._dtype == values.dtype:
            return np.ascontiguousarray(values)
        with np.errstate(over="ignore"):
            converted = values.astype(self._dtype, order="C")
        if not np.isfinite(converted).all():
            lost = np.isinf(converted) & np.isfinite(values)
            if not lost.any():
                return converted
            row, column = np.argwhere(lost)[0]
            name = ids[int(row)]
            name = name.as_py() if hasattr(name, "as_py") else int(name)
            raise OutputError(
                f"the embedding of node {name!r} has {values[row, column]:g} in column {column};"
                f" the largest float16 is {np.finfo(np.float16).max:g}, set output.dtype: float32"
            )
        return converted

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._abandon(error)
            return
        try:
            rows = self._shape.rows
            assert self._written == rows, f"{self._written} of {rows} rows written"
            for sink in self._sinks:
                sink.finish()
            self._streams.close()
        except BaseException as failure:
            self._abandon(failure)
            raise
        self._digest = self._digest_of(*self._objects.items())

    def verify(self) -> None:
        """Read the complete part back; every byte must be as it was written.

        By a checksum that takes a twentieth of the time of SHA-256: what it has to find is damage.

        Raises:
            OutputError: an object is missing, or has another size or checksum; names it.
        """
        with ThreadPoolExecutor(2, "verify") as pool:
            checks = [
                pool.submit(verify_object, self._storage, uri, sink.size, sink.checksum)
                for uri, sink in self._objects.items()
            ]
            for check in checks:
                check.result()

    def _digest_of(
        self, rows: tuple[str, HashedSink], ids: tuple[str, HashedSink] | None = None
    ) -> PartDigest:
        """From the (uri, sink) of the part's one or two objects."""
        digest = PartDigest(
            _name(rows[0]),
            self._shape.rows,
            rows[1].size,
            rows[1].sha256,
            first_key=self._first_key,
            last_key=self._last_key,
        )
        if ids is None:
            return digest
        uri, sink = ids
        return replace(digest, ids_name=_name(uri), ids_size=sink.size, ids_sha256=sink.sha256)

    def _abandon(self, error: BaseException) -> None:
        """Leave nothing: neither open streams nor the first object of an unfinished pair."""
        for sink in self._objects.values():
            sink.detach()
        try:
            with suppress(type(error)):
                self._streams.__exit__(type(error), error, error.__traceback__)
        finally:
            with suppress(EmbertideError):
                self._storage.delete(self._objects)


def _key_of(id_alone: Ids, kind: IdKind) -> str:
    return to_hex(key_at(key_words(id_alone, kind), 0))


def _name(uri: str) -> str:
    return uri.rsplit("/", 1)[1]


def verify_object(storage: Storage, uri: str, size: int, checksum: str) -> None:
    """Read an object back; every byte must be as it was written.

    Raises:
        OutputError: it is missing, or has another size or checksum.
    """
    again = "the store did not keep what was written; nothing was published, run the job again"
    try:
        info = storage.stat(uri)
        if info is None:
            raise OutputError(f"{uri} is missing although it was written: {again}")
        if info.size != size:
            raise OutputError(f"{uri} has {info.size} bytes, {size} were written: {again}")
        with storage.open(uri, info) as file:
            found = _checksum(file)
    except (ObjectMissing, InputChanged) as error:
        raise OutputError(
            f"{uri} was removed or replaced while it was verified: {again}"
        ) from error
    if found != checksum:
        raise OutputError(
            f"{uri} has the XXH3 checksum {found}, it was written with {checksum}: {again}"
        )


def _checksum(file: Any) -> str:
    """The digest of all that can be read, in hex; a remote store is read ahead meanwhile."""
    found, piece = xxh3_128(), memoryview(bytearray(_READ_BYTES))
    while got := file.readinto(piece):
        found.update(piece[:got])
    return found.hexdigest()
