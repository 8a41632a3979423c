"""What changed since the version before: rows, how far they moved, whether neighbours stayed."""

from __future__ import annotations

import math

from embertide.facts.report.charts import Scale, axis, bar, canvas, row
from embertide.facts.report.figures import figure, section
from embertide.facts.report.markup import Child, Html, definitions, table, tag
from embertide.facts.report.numbers import count, duration, share, short_count, small
from embertide.facts.report.run import Run
from embertide.facts.telemetry.comparison import COMPARED, Comparison, Distribution, TypeComparison

_QUANTILES = ("1%", "5%", "25%", "50%")
_ROW_HEIGHT = 22
_MOST_ROWS = 14
_LEADS = {
    "first": "The first version: there was none to compare it with.",
    "off": "Not compared (spec.output.compare: false).",
}


def changes(run: Run) -> Html | None:
    """The comparison with the version that was current before; None where it is not known."""
    found = run.report.comparison
    if found is None:
        return None
    return section(
        "changes",
        "Changes",
        _lead(found),
        *(part for of_type in found.types for part in _of_type(of_type)),
        _edges(found),
    )


def _lead(found: Comparison) -> Child:
    if found.state != COMPARED:
        return _LEADS.get(found.state, found.why)
    model = "" if found.same_model else " It had another model, so that cosines say nothing."
    words = f", row by row, in {duration(found.seconds)}.{model}"
    return tag("span", "Compared with ", tag("code", found.previous), words)


def _of_type(of_type: TypeComparison) -> list[Html]:
    title = f": {of_type.name}" if of_type.name else ""
    parts = [tag("div", definitions(_facts(of_type)), class_="facts")]
    if of_type.name:
        parts.insert(0, tag("h3", of_type.name))
    if of_type.previous_rows is not None:
        parts.append(_rows_figure(of_type, title))
    if of_type.moved is not None:
        note = "1 - cosine of a row with the same row of the version before; 0 is not moved at all."
        parts.append(_histogram(f"How far rows moved{title}", of_type.moved, note))
    note = "Euclidean length of each row."
    parts.append(_histogram(f"Lengths of the rows{title}", of_type.norms, note))
    return parts


def _facts(of_type: TypeComparison) -> dict[str, Child]:
    rows = of_type.rows
    cosines = {
        f"Cosine that {at} of the rows do not exceed": f"{cosine:.4f}"
        for at in _QUANTILES
        if (cosine := of_type.cosine(at)) is not None
    }
    sample = short_count(of_type.sample_rows)
    return {
        "Nearest neighbours kept": None
        if of_type.overlap is None
        else f"{of_type.overlap:.1%} of 10, within {sample} ids",
        "Not explained by a rotation": None
        if of_type.residual is None
        else f"{small(100 * of_type.residual)} % of the sample",
        **cosines,
        "Changes since the version before": None
        if of_type.delta is None
        else of_type.delta.sentence(of_type.rows),
        "Zero vectors": f"{count(of_type.zero_rows)}, {share(of_type.zero_rows, rows)}",
        "Vectors that another row has too": f"{count(of_type.duplicate_rows)},"
        f" {share(of_type.duplicate_rows, rows)}",
    }


def _rows_figure(of_type: TypeComparison, title: str) -> Html:
    counts = {
        "unchanged": of_type.unchanged_rows or 0,
        "changed": of_type.changed_rows or 0,
        "new": of_type.new_rows or 0,
        "removed": of_type.removed_rows or 0,
    }
    whole = sum(counts.values())
    numbers: list[list[Child]] = [
        [name, count(number), share(number, whole)] for name, number in counts.items()
    ]
    numbers_table = table("Rows by what became of them", ["Rows", "Number", "Share"], numbers)
    bars = [(name, number, share(number, whole)) for name, number in counts.items()]
    return figure(f"Rows{title}", _bars(bars), numbers_table)


def _histogram(title: str, values: Distribution, note: str) -> Html:
    """Bins joined to decades, or to the fewest parts of decades that give enough rows."""
    grouped = _grouped(values)
    whole = sum(number for _, number in grouped)
    numbers: list[list[Child]] = [
        [label, count(number), share(number, whole)] for label, number in grouped
    ]
    bars = [(label, number, share(number, whole)) for label, number in grouped]
    return figure(title, _bars(bars), table(title, ["Value", "Rows", "Share"], numbers), note=note)


def _bars(bars: list[tuple[str, int, str]]) -> list[Html]:
    scale = Scale(max([1, *(number for _, number, _ in bars)]), short_count)
    drawn = [
        row(
            label,
            canvas(
                [bar(scale, 0, number, "sent", f"{label}: {count(number)}")],
                f"{label}: {count(number)} rows",
                _ROW_HEIGHT,
                scale,
            ),
            f"{short_count(number)}, {part}",
        )
        for label, number, part in bars
    ]
    return [*drawn, axis(scale, "rows")]


def _grouped(values: Distribution) -> list[tuple[str, int]]:
    """(range in words, how many) from the least to the largest."""
    last = values.first + len(values.counts) / values.per_decade
    wide = next(
        bins
        for bins in (1, 2, 4, 5, 10, 20, 40, 80, 160, 320, 640)
        if (last - values.first) * values.per_decade / bins <= _MOST_ROWS - 1
    )
    sums: dict[int, int] = {}
    start = round(values.first * values.per_decade)
    for place, number in enumerate(values.counts, start=start):
        at = math.floor(place / wide)
        sums[at] = sums.get(at, 0) + number
    found = [("0", values.below)] if values.below else []
    for at, number in sums.items():
        low, high = (10 ** (wide * edge / values.per_decade) for edge in (at, at + 1))
        found.append((f"{small(low)} to {small(high)}", number))
    return found


def _edges(found: Comparison) -> Html | None:
    rows: list[list[Child]] = [
        [
            edges.name,
            count(edges.rows),
            "-" if edges.previous is None else count(edges.previous),
        ]
        for edges in found.edges
    ]
    return table("Edges read", ["Edge type", "Rows", "Before"], rows) if rows else None
