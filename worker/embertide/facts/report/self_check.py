"""Rows of every layer that were computed a second time: how many, and how far off they are."""

from __future__ import annotations

import math

from embertide.facts.report.charts import Scale, axis, bar, canvas, row
from embertide.facts.report.figures import figure, section
from embertide.facts.report.markup import Child, Html, table, tag
from embertide.facts.report.numbers import count, duration, small
from embertide.facts.report.run import Run
from embertide.facts.telemetry.self_check import CHECKED, CheckedRows, SelfCheck

_ROW_HEIGHT = 22
_LEAST_DECADE = -9
"""Where the scale of errors begins; float32 rounds by 6e-8."""


def self_check(run: Run) -> Html | None:
    """The self-check; None where it is not known."""
    found = run.report.self_check
    if found is None:
        return None
    if found.state != CHECKED:
        words = "No rows were computed a second time (spec.inference.checkedRows: 0)."
        return section("self-check", "Self-check", words)
    skipped = [tag("p", sentence, class_="note") for sentence in found.skipped]
    return section("self-check", "Self-check", _lead(found), _errors(found), *skipped)


def _lead(found: SelfCheck) -> str:
    return (
        f"{count(found.rows)} rows were computed a second time, in float64, from the run's own rows"
        f" of the layer before, in {duration(found.seconds)}. All agree: values may differ by"
        f" {small(found.tolerance)} of the largest of their column, and by what rounding explains."
    )


def _errors(found: SelfCheck) -> Html:
    """On a logarithmic scale, from far less than float32's rounding to the tolerance."""
    last = math.ceil(math.log10(found.tolerance)) + 1
    scale = Scale(last - _LEAST_DECADE, lambda decades: f"1e{int(decades) + _LEAST_DECADE}")
    drawn = [_row(scale, one) for one in found.checked if one.rows]
    numbers: list[list[Child]] = [
        [
            _name(one),
            count(one.rows),
            count(one.in_edges),
            small(one.largest_error),
            f"{one.chance:.1%}",
        ]
        for one in found.checked
    ]
    titles = ["Rows of", "Compared", "In-edges", "Largest error", "1 in 1,000 is caught"]
    return figure(
        "Largest error of each layer",
        [*drawn, axis(scale, "of the largest magnitude")],
        table("Rows that were computed a second time", titles, numbers),
        note="Errors are shares of the largest magnitude of a layer's rows."
        " The last column is the probability that a fault that changes one row in a thousand"
        " would have been seen.",
    )


def _row(scale: Scale, one: CheckedRows) -> Html:
    error = max(one.largest_error, 10.0**_LEAST_DECADE)
    length = min(scale.largest, math.log10(error) - _LEAST_DECADE)
    words = f"{_name(one)}: {small(one.largest_error)}"
    drawn = canvas([bar(scale, 0, length, "sent", words)], words, _ROW_HEIGHT, scale)
    return row(_name(one), drawn, small(one.largest_error))


def _name(one: CheckedRows) -> str:
    of_type = f"{one.node_type}, " if one.node_type else ""
    return f"{of_type}layer {one.layer + 1}, {one.makes}"
