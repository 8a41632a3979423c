"""csv and tsv: arrow parses blocks of whole lines; lines are looked at one by one for errors only.

Parsing our own blocks, rather than streaming with arrow, gives every row a place (so a bad
one can be shown with its line number), works in the middle of a file, and keeps memory at a
few blocks. A quoted field must end on its line: otherwise a file could not be split anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from embertide.errors import InputError
from embertide.io.readers.columns import Column, listed, similar_hint
from embertide.io.readers.dialect import Dialect
from embertide.io.readers.recognise import refuse_other
from embertide.io.readers.splits import Split, split_ranges
from embertide.io.readers.text_errors import (
    HAS_NUL,
    HAS_RETURN,
    MARK,
    NUL,
    OTHER_ENCODING,
    RETURN,
    BadLines,
    exact_ids,
    has_inner_mark,
    line_of_row,
)
from embertide.io.readers.text_hints import comment_hint, separator_hint
from embertide.io.readers.text_lines import (
    BLOCK_BYTES,
    FIRST_LINE,
    TO_THE_END,
    first_lines,
    is_stream,
    line_blocks,
    span_of_lines,
    text_file,
)
from embertide.io.readers.vector_types import as_lists
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import ObjectInfo, Storage

_ARROW_TYPES = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "text": pa.large_string(),
    "vector": pa.large_string(),
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte-order mark, in either order."""
_ROUNDED = 2.0**53
"""A float of this size or more may be another integer that was rounded."""


@dataclass(frozen=True)
class Layout:
    """What the first line of an object tells: fields per line, and which are wanted.

    ``skip`` is the length in bytes of what comes before the data: comments, byte-order mark and
    header.
    """

    fields: int
    wanted: tuple[int, ...]
    skip: int


def split_text(
    storage: Storage,
    info: ObjectInfo,
    columns: Sequence[Column],
    dialect: Dialect,
    target_bytes: int,
) -> list[Split]:
    """The byte ranges of one object; one that :func:`is_stream` is a single split."""
    read_layout(storage, info, columns, dialect)
    if is_stream(info.uri, dialect.encoding):
        return [Split.of(info, 0, info.size, info.size)]
    return [
        Split.of(info, start, stop, stop - start)
        for start, stop in split_ranges(info.size, info.size, target_bytes)
    ]


def read_layout(
    storage: Storage, info: ObjectInfo, columns: Sequence[Column], dialect: Dialect
) -> Layout:
    """Find the wanted columns in the first line; InputError names the columns there are."""
    with text_file(storage, info, dialect.encoding, [FIRST_LINE]) as file:
        skipped, line = dialect.first_line(first_lines(file, info.uri))
    bom = len(MARK) if line.startswith(MARK) else 0
    text = _first_text(info.uri, line[bom:], dialect)
    names = dialect.split_fields(text)
    if not dialect.header:
        if line and not names:
            raise InputError(
                f"{info.uri} line 1 is empty, so the columns cannot be counted; remove the line"
            )
        wanted = tuple(_by_index(info.uri, column, names, text, dialect) for column in columns)
        return Layout(len(names), wanted, skipped + bom)
    if not line.strip():
        raise InputError(
            f"{info.uri} has no header line; write one, or set header: false and give indices"
        )
    wanted = tuple(_by_name(info.uri, column, names, text, dialect) for column in columns)
    return Layout(len(names), wanted, skipped + len(line))


def _first_text(uri: str, line: bytes, dialect: Dialect) -> str:
    """The first line decoded; InputError where it is no text, or no whole line."""
    refuse_other(uri, line, "plain csv or tsv")
    if line.startswith(_UTF16) or NUL in line:
        raise InputError(f"{uri} line 1: {HAS_NUL}")
    if RETURN in line.rstrip(b"\r\n"):
        raise InputError(f"{uri} line 1: {HAS_RETURN}")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{uri} line 1 is not UTF-8 ({error}); {OTHER_ENCODING}") from error
    if not dialect.is_whole(line):
        raise InputError(f"{uri} line 1: unterminated quoted field; correct the line")
    return text


def _by_index(uri: str, column: Column, names: list[str], line: str, dialect: Dialect) -> int:
    index, fields = int(column.name), len(names)
    if fields and index >= fields:
        hint = comment_hint(line, dialect) or separator_hint(line, dialect)
        raise InputError(
            f"{uri} has no {column}: the lines have {fields} fields, 0 to {fields - 1}; "
            f"correct the index or the delimiter{hint}"
        )
    return index


def _by_name(uri: str, column: Column, names: list[str], line: str, dialect: Dialect) -> int:
    if names.count(str(column.name)) == 1:
        return names.index(str(column.name))
    if column.name in names:
        raise InputError(
            f"{uri} has several columns {column.name!r}; rename all but one where it is written;"
            f" its columns are {listed(names)}"
        )
    hint = (
        comment_hint(line, dialect)
        or separator_hint(line, dialect)
        or similar_hint(str(column.name), names)
    )
    raise InputError(
        f"{uri} has no {column}; the columns in its first line are {listed(names)} "
        f"(wrong delimiter? no header? then set header: false){hint}"
    )


def read_text(
    storage: Storage,
    columns: Sequence[Column],
    dialect: Dialect,
    split: Split,
    batch_rows: int,
) -> Iterator[tuple[list[Any], Where]]:
    """The rows of a split in order: one arrow array per column, at most ``batch_rows`` long."""
    info = split.info
    layout = read_layout(storage, info, columns, dialect)
    stop = TO_THE_END if is_stream(split.uri, dialect.encoding) else split.stop
    spans = [span_of_lines(split.start, split.stop)]
    bad = BadLines(
        storage=storage, info=info, columns=columns, wanted=layout.wanted,
        fields=layout.fields, dialect=dialect,
    )  # fmt: skip
    with text_file(storage, info, dialect.encoding, spans) as file:
        for offset, block in line_blocks(file, split.uri, split.start, stop, BLOCK_BYTES):
            if offset < layout.skip:
                offset, block = layout.skip, block[layout.skip - offset :]
            block = dialect.without_comments(block)
            if not block:
                continue
            table = _parse(block, columns, dialect, layout, bad, offset)
            where = Where(split.uri, 0, partial(line_of_row, storage, info, dialect, offset))
            for batch in table.to_batches(max_chunksize=batch_rows):
                arrays = [batch.column(str(i)) for i in layout.wanted]
                yield [_typed(a, c, where) for a, c in zip(arrays, columns, strict=True)], where
                where = where.skip(batch.num_rows)


def _typed(array: Any, column: Column, where: Where) -> Any:
    return as_lists(array, column, where) if column.kind == "vector" else array


def _parse(
    block: bytes,
    columns: Sequence[Column],
    dialect: Dialect,
    layout: Layout,
    bad: BadLines,
    offset: int,
) -> Any:
    """One block as an arrow table of the wanted columns, named by their index."""
    if NUL in block or has_inner_mark(block):
        bad.refuse_broken(block, offset)
    types = [_ARROW_TYPES[column.kind] for column in columns]
    try:
        table = _read_csv(block, layout, dialect, types)
    except pa.ArrowInvalid as error:
        table = _with_whole_floats(block, layout, dialect, types, bad, offset)
        if table is None:
            raise bad.explain(block, offset, str(error)) from error
    # A quoted line end or a lone carriage return makes rows and lines differ (so do blank
    # lines, which are fine), unless the end of the block cuts the quoted field.
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    last = block[block.rfind(b"\n", 0, -1) + 1 :]
    if table.num_rows != lines or not dialect.is_whole(last):
        bad.refuse_broken(block, offset)
    return table


def _read_csv(block: bytes, layout: Layout, dialect: Dialect, types: Sequence[Any]) -> Any:
    wanted = [str(i) for i in layout.wanted]
    return pc.read_csv(
        pa.BufferReader(block),
        pc.ReadOptions(
            column_names=[str(i) for i in range(layout.fields)],
            use_threads=False,
            block_size=len(block) + 1,
        ),
        dialect.parse_options,
        pc.ConvertOptions(
            column_types=dict(zip(wanted, types, strict=True)),
            include_columns=list(dict.fromkeys(wanted)),
            null_values=[""],
            strings_can_be_null=True,
            decimal_point=dialect.decimal,
        ),
    )


def _with_whole_floats(
    block: bytes,
    layout: Layout,
    dialect: Dialect,
    types: Sequence[Any],
    bad: BadLines,
    offset: int,
) -> Any | None:
    """A block whose ids are written as floats: 1.0, as pandas does, or 1e+00, as numpy does.

    Returns:
        The table, with ids as int64; None where that is not what is wrong with it.
    """
    names = [str(i) for i, kind in zip(layout.wanted, types, strict=True) if kind == pa.int64()]
    try:
        table = _read_csv(block, layout, dialect, _replaced(types, pa.float64()))
        if any(_may_be_rounded(table.column(name)) for name in names):
            return _with_exact_ids(block, layout, dialect, types, bad, offset)
        columns = [table.column(name).cast(pa.int64()) for name in names]
    except pa.ArrowInvalid:
        return None
    return _with_columns(table, names, columns)


def _with_exact_ids(
    block: bytes,
    layout: Layout,
    dialect: Dialect,
    types: Sequence[Any],
    bad: BadLines,
    offset: int,
) -> Any:
    """A block in which some ids are written as floats, and others are beyond what floats count."""
    bad.refuse_bad(block, offset)
    names = [str(i) for i, kind in zip(layout.wanted, types, strict=True) if kind == pa.int64()]
    table = _read_csv(block, layout, dialect, _replaced(types, pa.large_string()))
    texts = (table.column(name).to_pylist() for name in names)
    return _with_columns(
        table, names, [pa.array(exact_ids(of, dialect), pa.int64()) for of in texts]
    )


def _replaced(types: Sequence[Any], ids: Any) -> list[Any]:
    return [ids if kind == pa.int64() else kind for kind in types]


def _may_be_rounded(floats: Any) -> bool:
    values = floats.to_numpy()
    return bool((np.abs(values) >= _ROUNDED).any())


def _with_columns(table: Any, names: Sequence[str], columns: Sequence[Any]) -> Any:
    for name, column in zip(names, columns, strict=True):
        table = table.set_column(table.column_names.index(name), name, column)
    return table
