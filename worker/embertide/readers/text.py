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

import pyarrow as pa
import pyarrow.csv as pc

from embertide.errors import InputError
from embertide.readers.columns import Column
from embertide.readers.splits import Split, split_ranges
from embertide.readers.text_errors import (
    HAS_NUL,
    MARK,
    NUL,
    BadLines,
    has_inner_mark,
    is_whole,
    line_of_row,
    split_fields,
)
from embertide.readers.text_lines import (
    BLOCK_BYTES,
    FIRST_LINE,
    TO_THE_END,
    codec_of,
    first_line,
    line_blocks,
    span_of_lines,
    text_file,
)
from embertide.readers.where import Where
from embertide.storage.protocol import ObjectInfo, Storage

_ARROW_TYPES = {"integer": pa.int64(), "number": pa.float64(), "text": pa.large_string()}
_OTHER_FORMATS = {
    b"PAR1": "parquet",
    b"\x93NUM": "npy",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f": "zstd",
}


@dataclass(frozen=True)
class Dialect:
    """How the text is written: whether a header line names the columns, and the separator."""

    header: bool
    separator: str


@dataclass(frozen=True)
class Layout:
    """What the first line of an object tells: fields per line, and which are wanted.

    ``skip`` is the length in bytes of what comes before the data: byte-order mark and header.
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
    """The byte ranges of one object; a compressed one is a single split."""
    read_layout(storage, info, columns, dialect)
    if codec_of(info.uri) is not None:
        return [Split.of(info, 0, info.size, info.size)]
    return [
        Split.of(info, start, stop, stop - start)
        for start, stop in split_ranges(info.size, info.size, target_bytes)
    ]


def read_layout(
    storage: Storage, info: ObjectInfo, columns: Sequence[Column], dialect: Dialect
) -> Layout:
    """Find the wanted columns in the first line; InputError names the columns there are."""
    with text_file(storage, info, [FIRST_LINE]) as file:
        line = first_line(file, info.uri)
    for magic, name in _OTHER_FORMATS.items():
        if line.startswith(magic):
            raise InputError(f"{info.uri} is {name}, not plain csv or tsv; correct format or name")
    bom = len(MARK) if line.startswith(MARK) else 0
    try:
        names = split_fields(line[bom:].decode(), dialect.separator)
    except UnicodeDecodeError as error:
        raise InputError(f"{info.uri} line 1 is not UTF-8 ({error}); convert the file") from error
    if NUL in line:
        raise InputError(f"{info.uri} line 1: {HAS_NUL}")
    if not is_whole(line, dialect.separator):
        raise InputError(f"{info.uri} line 1: unterminated quoted field; correct the line")
    if not dialect.header:
        if line and not names:
            raise InputError(
                f"{info.uri} line 1 is empty, so the columns cannot be counted; remove the line"
            )
        wanted = tuple(_by_index(info.uri, column, len(names)) for column in columns)
        return Layout(len(names), wanted, bom)
    if not line.strip():
        raise InputError(
            f"{info.uri} has no header line; write one, or set header: false and give indices"
        )
    wanted = tuple(_by_name(info.uri, column, names) for column in columns)
    return Layout(len(names), wanted, len(line))


def _by_index(uri: str, column: Column, fields: int) -> int:
    index = int(column.name)
    if fields and index >= fields:
        raise InputError(
            f"{uri} has no {column}: the lines have {fields} fields, 0 to {fields - 1}; "
            "correct the index or the delimiter"
        )
    return index


def _by_name(uri: str, column: Column, names: list[str]) -> int:
    if names.count(str(column.name)) == 1:
        return names.index(str(column.name))
    present = ", ".join(repr(name) for name in names)
    if column.name in names:
        raise InputError(f"{uri} has several columns {column.name!r}; its columns are {present}")
    raise InputError(
        f"{uri} has no {column}; the columns in its first line are {present} "
        "(wrong delimiter? no header? then set header: false)"
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
    stop = split.stop if codec_of(split.uri) is None else TO_THE_END
    with text_file(storage, info, [span_of_lines(split.start, split.stop)]) as file:
        for offset, block in line_blocks(file, split.uri, split.start, stop, BLOCK_BYTES):
            if offset == 0:
                offset, block = layout.skip, block[layout.skip :]
            if not block:
                continue
            bad = BadLines(
                storage=storage, info=info, columns=columns, wanted=layout.wanted,
                fields=layout.fields, separator=dialect.separator,
            )  # fmt: skip
            table = _parse(block, columns, dialect, layout, bad, offset)
            where = Where(split.uri, 0, partial(line_of_row, storage, info, offset))
            for batch in table.to_batches(max_chunksize=batch_rows):
                yield [batch.column(str(i)) for i in layout.wanted], where
                where = where.skip(batch.num_rows)


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
    wanted = [str(i) for i in layout.wanted]
    types = [_ARROW_TYPES[column.kind] for column in columns]
    try:
        table = pc.read_csv(
            pa.BufferReader(block),
            pc.ReadOptions(
                column_names=[str(i) for i in range(layout.fields)],
                use_threads=False,
                block_size=len(block) + 1,
            ),
            pc.ParseOptions(delimiter=dialect.separator),
            pc.ConvertOptions(
                column_types=dict(zip(wanted, types, strict=True)),
                include_columns=list(dict.fromkeys(wanted)),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        raise bad.explain(block, offset, str(error)) from error
    # A quoted line end or a lone carriage return makes rows and lines differ (so do blank
    # lines, which are fine), unless the end of the block cuts the quoted field.
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    last = block[block.rfind(b"\n", 0, -1) + 1 :]
    if table.num_rows != lines or not is_whole(last, dialect.separator):
        bad.refuse_broken(block, offset)
    return table
