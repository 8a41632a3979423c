"""Tables that notebooks show in place of an object's Python text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape


def html_table(title: str, facts: Mapping[str, object], notes: Iterable[str] = ()) -> str:
    """A table of names and values; notes are lines below it. All text is escaped.

    Args:
        facts: name -> value; empty values are left out.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
        if value not in ("", None)
    )
    lines = "".join(f"<li>{escape(note)}</li>" for note in notes)
    below = f"<ul>{lines}</ul>" if lines else ""
    return f"<table><caption><b>{escape(title)}</b></caption>{rows}</table>{below}"
