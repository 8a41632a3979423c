"""What all tables and lines on a terminal have in common; imports nothing until it draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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
    """A line of its own, never wrapped: URIs are copied from here."""
    console.print(text, soft_wrap=True, highlight=False)


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Lines of (label, text): the labels stand in a column of their own, the texts wrap."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts:
        grid.add_row(label, text)
    console.print(grid, highlight=False)


def escaped(text: str) -> str:
    """Text in which brackets are no markup."""
    from rich.markup import escape

    return escape(text)
