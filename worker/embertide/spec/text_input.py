"""What inputs have in common that may be csv or tsv: how columns are named and separated."""

from __future__ import annotations

from typing import Any, Protocol

from embertide.spec.base import Problem
from embertide.spec.dialect import TextDialect
from embertide.spec.tables import COLUMN_FORMATS


class TextInput(Protocol):
    """An input in any format, among them csv and tsv."""

    @property
    def format(self) -> Any:
        """The format of the files."""

    @property
    def header(self) -> bool:
        """Whether the first line of every object names the columns."""

    @property
    def delimiter(self) -> str | None:
        """The character between columns of csv, if it is set."""

    @property
    def dialect(self) -> TextDialect | None:
        """How the text is written."""

    @property
    def separator(self) -> str:
        """The character between columns of csv and tsv."""


def named_columns(item: TextInput) -> bool:
    """Whether columns are selected by name; otherwise by 0-based index."""
    return item.format in COLUMN_FORMATS or (item.format in ("csv", "tsv") and item.header)


def text_problems(item: TextInput) -> list[Problem]:
    """What an input has that only csv and tsv may have, or not together."""
    problems: list[Problem] = []
    if item.format not in ("csv", "tsv") and not item.header:
        problems.append((("header",), f"is false; only csv and tsv lack one, not {item.format}"))
    if item.delimiter is not None and item.format != "csv":
        message = f"is {item.delimiter!r}; only format csv has a delimiter, not {item.format}"
        problems.append((("delimiter",), message))
    if item.dialect is not None and item.format not in ("csv", "tsv"):
        message = f"is given; only csv and tsv have one, not {item.format}; omit it"
        problems.append((("dialect",), message))
    elif item.dialect is not None:
        problems += item.dialect.problems_beside(item.separator)
    if item.delimiter is not None and not item.delimiter.isascii():
        problems.append((("delimiter",), f"is {item.delimiter!r}; must be one ASCII character"))
    if item.delimiter in ("\n", "\r", '"', "\0"):
        problems.append((("delimiter",), f"is {item.delimiter!r}; must not end a line or quote"))
    return problems
