"""Markup whose text is always escaped: whatever comes from users stays text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape


class Html(str):
    """Markup; every other string is text and is escaped before it becomes markup."""

    __slots__ = ()


Child = str | None
"""`Html`, or text; None is nothing."""
Value = str | int | float | bool | None
"""The value of an attribute; None and False leave it out, True gives it without a value."""

_VOID = frozenset({"meta", "link", "br", "hr"})


def tag(element: str, /, *children: Child, **attributes: Value) -> Html:
    """An element; ``class_`` and ``aria_label`` are written ``class`` and ``aria-label``."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in _VOID:
        return Html(f"<{element}{given}>")
    return Html(f"<{element}{given}>{join(children)}</{element}>")


def join(children: Iterable[Child]) -> Html:
    """Children one after another."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def _escaped(child: str) -> str:
    return child if isinstance(child, Html) else escape(child)


def _attribute(name: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'


def definitions(entries: Mapping[str, Child]) -> Html:
    """Names and what they stand for; entries of None are left out."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value))
            for name, value in entries.items()
            if value is not None
        ),
    )


def table(caption: str, columns: list[str], rows: Iterable[list[Child]], words: int = 1) -> Html:
    """A table that scrolls by itself where it is too wide.

    Args:
        columns: their headings.
        rows: cells; the first of a row is its heading.
        words: how many columns, from the left, hold words; the others hold numbers.
    """
    head = (
        tag("th", name, scope="col", class_=None if at < words else "number")
        for at, name in enumerate(columns)
    )
    body = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(
                tag("td", cell, class_=None if at < words else "number")
                for at, cell in enumerate(row[1:], start=1)
            ),
        )
        for row in rows
    )
    inner = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head)),
        tag("tbody", *body),
    )
    return tag("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)
