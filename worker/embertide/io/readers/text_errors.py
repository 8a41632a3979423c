"""Find the bad line: slow, obvious, and run only once something is known to be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from embertide.errors import InputError
from embertide.io.readers.columns import Column
from embertide.io.readers.dialect import Dialect
from embertide.io.readers.ids import is_whole_number
from embertide.io.readers.text_hints import HEADER_REPEATED, comment_hint, escape_hint, field_hint
from embertide.io.readers.text_lines import (
    BLOCK_BYTES,
    TO_THE_END,
    count_lines_before,
    line_blocks,
    text_file,
)
from embertide.io.storage.protocol import ObjectInfo, Storage

_INTEGER = re.compile(r"\s*-?[0-9]+\s*", re.ASCII)
_NUMBER = re.compile(
    r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*|\s*[+-]?(nan|inf(inity)?)\s*", re.I | re.A
)
_INT64_DIGITS = 19
_SHOWN_CHARACTERS = 80
NUL, RETURN = b"\0", b"\r"
HAS_NUL = (
    "contains a NUL byte: the file is UTF-16 (write dialect: {encoding: utf-16}) or not text"
    " (remove the byte)"
)
HAS_RETURN = (
    "contains a carriage return; end lines with \\n or \\r\\n (where all end with carriage returns"
    " alone: tr '\\r' '\\n')"
)
OTHER_ENCODING = (
    "state the encoding, often dialect: {encoding: latin-1} or windows-1252, or convert the file"
)
MARK = b"\xef\xbb\xbf"
"""The byte-order mark that may begin a file of UTF-8."""


def has_inner_mark(block: bytes) -> bool:
    """Whether a line of a block begins with a byte-order mark, where no file begins."""
    if MARK[:1] not in block:
        return False
    # A search for all three bytes would take a third of the time of parsing.
    values = np.frombuffer(block, np.uint8)
    at = np.flatnonzero(values == MARK[0])
    at = at[(at == 0) | (values[at - 1] == ord("\n"))]
    return any(block.startswith(MARK, int(i)) for i in at)


def numbered_lines(block: bytes) -> Iterator[tuple[int, bytes]]:
    """(index, line) of the lines that hold a row; blank ones count but hold none."""
    for i, line in enumerate(block.split(b"\n")):
        if line.strip(b"\r"):
            yield i, line


def line_of_row(storage: Storage, info: ObjectInfo, dialect: Dialect, offset: int, row: int) -> int:
    """Line number (from 1) of row ``row`` counted from byte ``offset``; reads the object again."""
    with text_file(storage, info, dialect.encoding) as file:
        line = 1 + count_lines_before(file, offset)
        held = row
        # Reading goes on where counting ended: a compressed stream cannot seek.
        for _, block in line_blocks(file, info.uri, 0, TO_THE_END, BLOCK_BYTES):
            lines = [i for i, _ in numbered_lines(dialect.without_comments(block))]
            if held < len(lines):
                return line + lines[held]
            held -= len(lines)
            line += block.count(b"\n")
    raise AssertionError(f"{info.uri} has no row {row} after byte {offset}")


@dataclass(frozen=True, kw_only=True)
class BadLines:
    """Explains why a block of an object could not be parsed."""

    storage: Storage
    info: ObjectInfo
    columns: Sequence[Column]
    wanted: tuple[int, ...]
    fields: int
    dialect: Dialect

    def explain(self, block: bytes, offset: int, reason: str) -> InputError:
        """The error for the first bad line of a block that arrow refused with ``reason``."""
        first = self._first_bad(block, offset)
        return first or self._error(offset, 0, f"(or a line soon after): {reason}")

    def refuse_bad(self, block: bytes, offset: int) -> None:
        """InputError for the first line whose fields are not what they should be."""
        error = self._first_bad(block, offset)
        if error is not None:
            raise error

    def _first_bad(self, block: bytes, offset: int) -> InputError | None:
        for i, line in numbered_lines(block):
            complaint = self._complaint(line)
            if complaint:
                return self._error(offset, i, complaint)
        return None

    def refuse_broken(self, block: bytes, offset: int) -> None:
        """InputError for a line that goes on over its end, or has bytes that no text has."""
        for i, line in numbered_lines(block):
            complaint = self._broken(line)
            if complaint:
                raise self._error(offset, i, complaint)

    def _error(self, offset: int, index: int, complaint: str) -> InputError:
        with text_file(self.storage, self.info, self.dialect.encoding) as file:
            line = 1 + count_lines_before(file, offset) + index
        return InputError(f"{self.info.uri} line {line}: {complaint}")

    def _broken(self, line: bytes) -> str | None:
        if RETURN in line.removesuffix(RETURN):
            return HAS_RETURN
        if NUL in line:
            return HAS_NUL
        if line.startswith(MARK):
            return (
                "begins with a byte-order mark, which would become part of an id: files were joined"
                " here; write the lines without it"
            )
        if self.dialect.is_whole(line):
            return None
        escapes = escape_hint(line.decode(errors="replace"), self.dialect)
        return (
            f"unterminated quoted field: {_shown(line)}; a value must not contain a line break, "
            f"remove it or use parquet{escapes}"
        )

    def _complaint(self, line: bytes) -> str | None:
        broken = self._broken(line)
        if broken:
            return broken
        try:
            fields = self.dialect.split_fields(line.decode())
        except UnicodeDecodeError as error:
            return f"is not UTF-8 ({error}); {OTHER_ENCODING}"
        if len(fields) != self.fields:
            return (
                f"has {len(fields)} fields, but the first line has {self.fields}: "
                f"{_shown(line)}; correct the line or the delimiter{self._comment(line)}"
            )
        for column, i in zip(self.columns, self.wanted, strict=True):
            wanted = _unmet(column, fields[i], self.dialect)
            if wanted:
                return f"{column} is {fields[i][:_SHOWN_CHARACTERS]!r}; {wanted}"
        return None

    def _comment(self, line: bytes) -> str:
        text = line.decode(errors="replace")
        return comment_hint(text, self.dialect) or escape_hint(text, self.dialect)


def _unmet(column: Column, text: str, dialect: Dialect) -> str | None:
    """What ``text`` should be, when it is not (an empty field is reported as null elsewhere)."""
    if text == "" or column.kind in ("text", "vector"):
        return None
    hint = field_hint(text, column.kind, dialect)
    if text == column.name:
        return HEADER_REPEATED
    number = dialect.number(text)
    if column.kind == "number":
        fits = _NUMBER.fullmatch(number)
        return None if fits else f"it must be a number, correct or drop the line{hint}"
    if not _INTEGER.fullmatch(text):
        if _NUMBER.fullmatch(number) and is_whole_number(float(number)):
            return None
        return f"ids must be integers, correct or drop the line (or set ids: string){hint}"
    if len(text.strip().lstrip("-0")) > _INT64_DIGITS or not -(2**63) <= int(text) < 2**63:
        return "ids must be integers from -2^63 to 2^63-1, renumber them (or set ids: string)"
    return None


def exact_ids(texts: Sequence[str | None], dialect: Dialect) -> list[int | None]:
    """Ids of a column in which some are written as floats; the others are exact at any size.

    ``texts`` are without mistakes.
    """
    return [None if text is None else _exact_id(text, dialect) for text in texts]


def _exact_id(text: str, dialect: Dialect) -> int:
    return int(text) if _INTEGER.fullmatch(text) else int(float(dialect.number(text)))


def _shown(line: bytes) -> str:
    return repr(line.decode(errors="replace").rstrip("\r\n")[:_SHOWN_CHARACTERS])
