"""A version as a folder of files that an index reads.

data/data-00000.parquet, ...   the rows (in a namespace's folder where the index wants one)
_zero_rows.txt                 ids of rows that are zero vectors, a JSON text or number a line
_convert.json                  what was written, and how; last, so that without it nothing is whole
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from json import dumps
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from embertide.edge.indexes.formats import Format, Writer, format_of
from embertide.edge.indexes.layout import Layout
from embertide.edge.indexes.presets import PRESETS, Preset
from embertide.edge.indexes.rows import Shaped, Shaper, int8_scale
from embertide.errors import EmbertideError, InputError, OutputError
from embertide.facts.telemetry.strict_json import json_text
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, open_version
from embertide.io.versions.manifest import TypeEntry
from embertide.io.versions.pointer import utc_now
from embertide.io.versions.reading import choose_result, iter_embeddings
from embertide.io.versions.rows import Batch
from embertide.io.versions.sinks import HashedSink

NOTE, ZERO_ROWS = "_convert.json", "_zero_rows.txt"
_PIECE_BYTES = 4 << 20
"""Bytes of rows that are encoded at a time, at most."""
_PIECES = 8
"""Pieces in a file, at least, so that files are nearly as large as they may be."""


@dataclass(frozen=True)
class FileInfo:
    """A file that was written: its name within the folder, rows, bytes and SHA-256 (hex)."""

    name: str
    rows: int
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was written.

    Attributes:
        index: the preset.
        uri: of the folder with the files, as the index is given it.
        rows: written ones.
        zero_rows: rows of the version that are zero vectors as they are written; they are listed in
            ``_zero_rows.txt``, and skipped where the layout asks for that.
        scale: of int8 vectors: a value is ``int8 * scale``; None for others.
        held: why the version is held; () where it is not.
        loading: how the index reads the files.
    """

    version: str
    node_type: str
    result: str
    index: str
    uri: str
    rows: int
    dim: int
    zero_rows: int
    scale: float | None
    held: tuple[str, ...]
    layout: Layout
    loading: str
    created: str = field(default_factory=utc_now)
    files: list[FileInfo] = field(default_factory=list)


def convert(
    storage: Storage,
    output_uri: str,
    folder_uri: str,
    index: str,
    layout: Layout,
    *,
    version: str | None = None,
    node_type: str | None = None,
    result: str | None = None,
    on_rows: Callable[[int], None] = lambda _rows: None,
) -> Conversion:
    """Write a version's rows (default: the current one) into a folder, for an index.

    Args:
        index: a name of :data:`embertide.edge.indexes.presets.PRESETS`.
        layout: of the preset, with what the caller changes; see :func:`check_layout`.
        on_rows: called with the number of rows that were written just now.

    Raises:
        InputError: the index does not read such a layout, or no such node type or
            result.
        ObjectMissing: no such version; lists those there are.
        OutputError: the folder has objects, a row does not fit, or a part is damaged. Nothing of
            what was written stays.
    """
    preset = PRESETS[index]
    info, manifest = open_version(storage, output_uri, version)
    chosen = choose_result(info.uri, manifest, node_type, result)
    check_layout(index, preset, layout, chosen.dim)
    folder_uri = folder_uri.rstrip("/")
    _refuse_objects(storage, folder_uri)

    def batches() -> Iterator[Batch]:
        return iter_embeddings(storage, output_uri, info.version, node_type, result)

    scale = _scale_of(layout, preset, batches)
    shaper = Shaper(layout, preset.limits, scale)
    constants = _constants(layout, info)
    with _Files(storage, folder_uri, preset, layout, chosen.dim, constants) as files:
        for batch in batches():
            files.write(shaper.shape(batch))
            on_rows(len(batch[1]))
    done = _describe(info, chosen, index, folder_uri, layout, scale, files)
    storage.write(f"{folder_uri}/{NOTE}", json_text(asdict(done), indent=1).encode() + b"\n")
    return done


def check_layout(index: str, preset: Preset, layout: Layout, dim: int) -> None:
    """Refuse what the index does not read.

    Raises:
        InputError: names the option and what it may be.
    """
    limits, own = preset.limits, preset.layout
    if layout.vectors not in limits.vectors:
        may = " or ".join(limits.vectors)
        raise InputError(f"--vectors is {layout.vectors}; {index} reads {may}")
    if own.ids == "text" and layout.ids not in ("text", "keep"):
        raise InputError(f"--ids is {layout.ids}; {index} reads ids that are text")
    if limits.dim is not None and dim > limits.dim:
        raise InputError(f"embeddings have {dim} values; {index} takes {limits.dim} at most")
    if limits.fixed_columns and (layout.id_column, layout.vector_column) != (
        own.id_column,
        own.vector_column,
    ):
        raise InputError(
            f"columns for {index} have the names {own.id_column} and {own.vector_column}; leave"
            " --id-column and --vector-column out"
        )
    more = [name for name in (layout.created_column, layout.version_column) if name]
    if more and (layout.format != "parquet" or limits.fixed_columns):
        raise InputError(f"{index} has no other columns; leave --created-column and the like out")
    names = [layout.id_column, layout.vector_column, *more]
    if len(set(names)) < len(names):
        raise InputError(f"two columns have the same name among {', '.join(names)}; choose others")
    if limits.file_bytes is not None and layout.file_bytes > limits.file_bytes:
        raise InputError(
            f"--file-bytes is {layout.file_bytes}; {index} takes files of {limits.file_bytes} bytes"
            " at most"
        )


def _constants(layout: Layout, info: VersionInfo) -> dict[str, Any]:
    """Column -> the value that it has in each row."""
    created = pa.scalar(datetime.fromisoformat(info.created), pa.timestamp("us", tz="UTC"))
    found = {layout.created_column: created, layout.version_column: pa.scalar(info.version)}
    return {name: value for name, value in found.items() if name}


def _refuse_objects(storage: Storage, folder_uri: str) -> None:
    there = storage.names(folder_uri)
    if there:
        raise OutputError(
            f"{folder_uri} has objects already, such as {min(there)}; choose an empty folder, since"
            " an index would read both"
        )


def _scale_of(
    layout: Layout, preset: Preset, batches: Callable[[], Iterator[Batch]]
) -> float | None:
    if layout.vectors != "int8":
        return None
    return layout.scale or int8_scale(batches(), Shaper(layout, preset.limits))


def _describe(
    info: VersionInfo,
    chosen: TypeEntry,
    index: str,
    folder_uri: str,
    layout: Layout,
    scale: float | None,
    files: _Files,
) -> Conversion:
    vector_types = {"float32": "vector", "float16": "halfvec", "int8": "int8"}
    if index != "pgvector":
        vector_types = {name: name for name in vector_types}
    loading = PRESETS[index].loading.format(
        folder=f"{folder_uri}/data",
        id=layout.id_column,
        vector=layout.vector_column,
        id_type="bigint" if files.integer_ids else "text",
        vector_type=vector_types[layout.vectors],
        dim=chosen.dim,
    )
    return Conversion(
        version=info.version,
        node_type=chosen.name,
        result=chosen.result,
        index=index,
        uri=f"{folder_uri}/data",
        rows=sum(file.rows for file in files.done),
        dim=chosen.dim,
        zero_rows=files.zero_rows,
        scale=scale,
        held=info.held,
        layout=layout,
        loading=loading,
        files=files.done,
    )


class _Files:
    """Files that are written, one after the other; after an exception none of them stays.

    Attributes:
        done: those that are complete.
        zero_rows: ids that were listed.
        integer_ids: whether ids are written as integers.
    """

    def __init__(
        self,
        storage: Storage,
        folder_uri: str,
        preset: Preset,
        layout: Layout,
        dim: int,
        constants: dict[str, Any],
    ) -> None:
        self._storage, self._folder_uri = storage, folder_uri
        self._preset, self._layout, self._dim = preset, layout, dim
        self._constants = constants
        self._format: Format | None = None
        self._file: _File | None = None
        self._streams = ExitStack()
        self._zeros: HashedSink | None = None
        self._created: list[str] = []
        self.done: list[FileInfo] = []
        self.zero_rows, self.integer_ids = 0, True

    def __enter__(self) -> Self:
        return self

    def write(self, shaped: Shaped) -> None:
        """Append rows."""
        self._list_zeros(shaped.zero_ids)
        if self._format is None:
            self._format = format_of(self._layout, shaped.ids.type, self._dim, self._constants)
            self.integer_ids = pa.types.is_integer(shaped.ids.type)
        at = 0
        while at < len(shaped.values):
            rows = slice(at, at + self._piece_rows(self._format.row_bytes))
            self._add(self._format, shaped.ids[rows], shaped.values[rows])
            at = rows.stop

    def _piece_rows(self, row_bytes: int) -> int:
        """Rows that are encoded together: they fit into the rest of a file that counts rows."""
        most = min(_PIECE_BYTES, self._layout.file_bytes // _PIECES) // row_bytes
        if self._layout.file_rows is not None:
            begun = 0 if self._file is None else self._file.rows
            most = min(most, self._layout.file_rows - begun)
        return max(1, most)

    def _add(self, format: Format, ids: Any, values: Any) -> None:
        piece = format.encode(ids, values)
        size = format.size(piece)
        if self._file is not None and self._file.size + size > self._layout.file_bytes:
            self._finish_file()
        if self._file is None:
            self._file = self._open(format)
        self._file.add(piece, len(values), size)
        if self._file.rows == self._layout.file_rows:
            self._finish_file()

    def _open(self, format: Format) -> _File:
        most = self._preset.limits.files
        if most is not None and len(self.done) == most:
            raise OutputError(
                f"the rows take more than {most} files of {self._layout.file_bytes} bytes, which is"
                " what the index takes; choose a larger --file-bytes"
            )
        folder = f"data/{self._preset.folder}".rstrip("/")
        name = f"{folder}/data-{len(self.done):05d}{format.suffix}"
        self._created.append(f"{self._folder_uri}/{name}")
        return _File(self._storage, f"{self._folder_uri}/{name}", name, format)

    def _finish_file(self) -> None:
        if self._file is not None:
            self.done.append(self._file.finish())
            self._file = None

    def _list_zeros(self, ids: Any) -> None:
        if not len(ids):
            return
        if self._zeros is None:
            uri = f"{self._folder_uri}/{ZERO_ROWS}"
            self._created.append(uri)
            self._zeros = HashedSink(self._streams.enter_context(self._storage.create(uri)))
        lines = [dumps(name, ensure_ascii=False) + "\n" for name in ids.to_pylist()]
        self._zeros.write("".join(lines).encode())
        self.zero_rows += len(lines)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._finish_file()
            self._streams.close()
            return
        with suppress(type(error)):
            if self._file is not None:
                self._file.abandon(error)
            self._streams.__exit__(kind, error, traceback)
        with suppress(EmbertideError):
            self._storage.delete(self._created)


class _File:
    """A file that is being written.

    Attributes:
        rows, size: so far; bytes as the format counts them.
    """

    def __init__(self, storage: Storage, uri: str, name: str, format: Format) -> None:
        self._stream = ExitStack()
        self._sink = HashedSink(self._stream.enter_context(storage.create(uri)))
        self._writer: Writer = format.open(self._sink)
        self._name, self.rows, self.size = name, 0, 0

    def add(self, piece: Any, rows: int, size: int) -> None:
        """Append an encoded piece."""
        self._writer.add(piece)
        self.rows += rows
        self.size += size

    def finish(self) -> FileInfo:
        """What was written."""
        self._writer.finish()
        self._stream.close()
        return FileInfo(self._name, self.rows, self._sink.size, self._sink.sha256)

    def abandon(self, error: BaseException) -> None:
        """The object does not appear."""
        self._sink.detach()
        self._stream.__exit__(type(error), error, error.__traceback__)
