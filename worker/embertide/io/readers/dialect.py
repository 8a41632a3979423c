"""How a text file is written: separators, quotes, escapes, comments, encoding and decimals.

One line is one row in every dialect, so that a file can be split anywhere.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow.csv as pc

UTF8 = "utf-8"
LONGEST_LINE_BYTES = 64 << 20
csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE_BYTES))
"""What arrow reads, :meth:`Dialect.split_fields` must be able to split."""
_MARK = "\ufeff".encode()


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How csv or tsv is written.

    Attributes:
        header: whether the first line that is no comment names the columns.
        quote: the character around fields, doubled within them; "" for none.
        escape: the character before one that is meant as it is; "" for none.
        comment: what a line without a row begins with; "" for none.
        encoding: a name that Python's codecs know.
        decimal: the character before the digits of a fraction.
    """

    header: bool
    separator: str
    quote: str = '"'
    escape: str = ""
    comment: str = ""
    encoding: str = UTF8
    decimal: str = "."

    @property
    def parse_options(self) -> pc.ParseOptions:
        """The same for arrow."""
        return pc.ParseOptions(
            delimiter=self.separator,
            quote_char=self.quote or False,
            double_quote=bool(self.quote),
            escape_char=self.escape or False,
        )

    def split_fields(self, line: str) -> list[str]:
        """The fields of one line (none when it is blank), in which no carriage return stands."""
        text = line.rstrip("\r\n")
        if not text:
            return []
        reader = csv.reader(
            [text],
            delimiter=self.separator,
            quotechar=self.quote or None,
            escapechar=self.escape or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
        )
        return next(reader)

    def is_whole(self, line: bytes) -> bool:
        """Whether every quoted field of the line also ends on it, and nothing escapes its end.

        As arrow reads it: a quote means something at the start of a field only, and two quotes
        inside a quoted field are one.
        """
        return self._whole_line.fullmatch(line) is not None

    @cached_property
    def _whole_line(self) -> re.Pattern[bytes]:
        apart, quote, escape = (
            re.escape(mark.encode()) for mark in (self.separator, self.quote, self.escape)
        )
        escaped = rb"|%b[^\r\n]" % escape if escape else b""
        rest = rb"(?:[^%b%b]%b)*+" % (apart, escape, escaped)
        field = rest
        if quote:
            quoted = rb"%b(?:[^%b%b]|%b%b%b)*+%b" % (
                quote, quote, escape, quote, quote, escaped, quote,
            )  # fmt: skip
            first = rb"[^%b%b%b]%b" % (quote, apart, escape, escaped)
            field = rb"(?:%b%b|(?:%b)%b|)" % (quoted, rest, first, rest)
        return re.compile(rb"%b(?:%b%b)*+" % (field, apart, field), re.DOTALL)

    def is_comment(self, line: bytes) -> bool:
        """Whether a line holds a comment instead of a row."""
        return bool(self.comment) and line.startswith(self.comment.encode())

    def without_comments(self, block: bytes) -> bytes:
        """Whole lines, in which blank ones take the place of comments."""
        if not self.comment:
            return block
        return re.sub(rb"(?m)^%b[^\n]*" % re.escape(self.comment.encode()), b"", block)

    def first_line(self, lines: Iterator[bytes]) -> tuple[int, bytes]:
        """How many bytes of comments begin a file, and the line after them.

        The line has its line end, and is empty when there is none. A byte-order mark that begins
        the file belongs to its first line.
        """
        skipped = 0
        for line in lines:
            text = line if skipped else line.removeprefix(_MARK)
            if not self.is_comment(text):
                return skipped, line
            skipped += len(line)
        return skipped, b""

    def number(self, text: str) -> str:
        """A number's text with a point; what has a point that is no decimal is none any more."""
        return text if self.decimal == "." else text.replace(".", "?").replace(self.decimal, ".")
