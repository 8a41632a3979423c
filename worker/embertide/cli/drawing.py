"""The common parts of tables and lines on a terminal; imports nothing until it draws."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_CONTROLS = ("Cc", "Cf")
"""Unicode's categories of control characters, and of those that turn the direction of text."""


def new_table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of words, which wrap, then of numbers, which never do."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def print_line(console: Console, text: str) -> None:
    """A line that is never wrapped: URIs are copied from here."""
    console.print(text, soft_wrap=True, highlight=False)


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Lines of (label, text): the labels have their own column, the texts wrap."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(label, text)
    console.print(grid, highlight=False)


def escaped(text: str) -> str:
    """Text in which brackets are no markup, and control characters do nothing."""
    from rich.markup import escape

    return escape(visible(text))


def visible(text: str) -> str:
    """Text in which control characters are shown as Python writes them, but for line ends.

    Ids, names of columns and of objects may hold any character; those would move a terminal's
    cursor, or change what it shows of other lines.
    """
    return "".join(c if c == "\n" or not _is_control(c) else repr(c)[1:-1] for c in text)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CONTROLS
