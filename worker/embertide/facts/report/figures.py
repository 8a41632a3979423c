"""What surrounds a chart: its section, title, legend, and the table of its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from embertide.facts.report.markup import Child, Html, tag


def section(name: str, title: str, lead: Child, *parts: Child) -> Html:
    """A part of the page; ``name`` is its anchor, ``lead`` says in a sentence what is seen."""
    return tag(
        "section",
        tag("h2", title, id=name),
        tag("p", lead, class_="lead") if lead is not None else None,
        *parts,
        aria_labelledby=name,
    )


def figure(
    title: str,
    rows: Sequence[Html],
    table: Html | None,
    *,
    legend: Child = None,
    note: Child = None,
) -> Html:
    """A chart of rows, with the table that has its numbers."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), legend),
        tag("div", *rows, class_="rows"),
        tag("p", note, class_="note") if note is not None else None,
        more("The numbers", table) if table is not None else None,
    )


def more(title: str, *content: Child) -> Html:
    """What is shown when asked for."""
    return tag("details", tag("summary", title), *content)


def legend(*entries: tuple[str, str]) -> Html:
    """(kind, words) of what a chart's marks mean."""
    return tag("ul", *(_entry(kind, words) for kind, words in entries), class_="legend")


def _entry(kind: str, words: str) -> Html:
    if kind == "plan":
        shape = tag("line", x1=7, x2=7, y1=0, y2=12, class_="plan")
    else:
        shape = tag("rect", width=14, height=12, class_=kind)
    swatch = tag("svg", shape, class_="swatch", width=14, height=12, aria_hidden="true")
    return tag("li", swatch, words)
