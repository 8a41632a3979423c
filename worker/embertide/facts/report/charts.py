"""Pieces of charts: a scale, bars and marks on it, rows of them with a label and a value.

Positions along a chart are percentages of its width, heights are pixels. So a chart fills whatever
width it is given, its text keeps its size, and nothing has to know how wide a screen is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embertide.facts.report.markup import Child, Html, tag

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TICKS = 6
_LEAST_PERCENT = 0.25
"""The narrowest bar that can be seen."""


@dataclass(frozen=True)
class Scale:
    """From 0 to ``largest``, written by ``words``; ``base`` is 1024 where ticks are bytes."""

    largest: float
    words: Callable[[float], str]
    base: float = 10.0

    def at(self, value: float) -> str:
        """Where a value is, in percent."""
        return f"{self._percent(value):.3f}%"

    def width(self, start: float, end: float) -> str:
        """How wide it is from one value to another."""
        wide = self._percent(end) - self._percent(start)
        return f"{max(_LEAST_PERCENT, wide) if end > start else 0.0:.3f}%"

    def _percent(self, value: float) -> float:
        return 100.0 * min(1.0, max(0.0, value / self.largest)) if self.largest else 0.0

    @property
    def ticks(self) -> list[float]:
        """About six round values."""
        if not self.largest:
            return [0.0]
        rough = self.largest / _TICKS
        unit = self.base ** math.floor(math.log(rough, self.base))
        within = rough / unit
        if self.base == 10.0:
            step = next(step for step in _STEPS if step >= within - 1e-9) * unit
        else:
            step = 2.0 ** math.ceil(math.log2(within)) * unit
        return [step * n for n in range(int(self.largest / step + 1e-9) + 1)]


def bar(
    scale: Scale,
    start: float,
    end: float,
    kind: str,
    says: str,
    *,
    y: float = 3,
    height: float = 16,
) -> Html:
    """A bar; ``says`` is shown where a pointer rests on it."""
    return tag(
        "rect",
        tag("title", says),
        x=scale.at(start),
        y=y,
        width=scale.width(start, end),
        height=height,
        class_=kind,
    )


def mark(scale: Scale, value: float, says: str, *, y: float = 0, height: float = 22) -> Html:
    """A stroke across a bar: what was planned."""
    at = scale.at(value)
    return tag("line", tag("title", says), x1=at, x2=at, y1=y, y2=y + height, class_="plan")


def text(scale: Scale, value: float, words: str, kind: str, *, y: float = 15) -> Html:
    """Words that begin a little right of a value."""
    return tag("text", words, x=scale.at(value), y=y, dx=5, class_=kind, aria_hidden="true")


def canvas(marks: Sequence[Html], says: str, height: float, scale: Scale | None = None) -> Html:
    """The SVG of one row; ``says`` is what it shows, for those who do not see it."""
    lines = [] if scale is None else [_grid_line(scale, tick, height) for tick in scale.ticks]
    return tag(
        "svg", tag("title", says), *lines, *marks, class_="chart", role="img", width="100%",
        height=height, aria_label=says,
    )  # fmt: skip


def _grid_line(scale: Scale, tick: float, height: float) -> Html:
    at = scale.at(tick)
    return tag("line", x1=at, x2=at, y1=0, y2=height, class_="grid")


def row(label: Child, plot: Html, value: Child, kind: str = "") -> Html:
    """A row of a chart: what it is of, the plot, its number."""
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("div", plot, class_="plot"),
        tag("span", value, class_="value"),
        class_=f"row {kind}".strip(),
    )


def axis(scale: Scale, says: str) -> Html:
    """The row below a chart's others, with the scale's numbers."""
    ticks = scale.ticks
    words = []
    for tick in ticks:
        far = tick > 0.92 * scale.largest
        anchor = "start" if tick == 0 else "end" if far else "middle"
        # Every second one has room on a narrow screen.
        kind = "tick odd" if ticks.index(tick) % 2 else "tick"
        place = scale.at(tick)
        words.append(tag("text", scale.words(tick), x=place, y=13, text_anchor=anchor, class_=kind))
    plot = tag("svg", *words, class_="axis", width="100%", height=18, aria_hidden="true")
    return row("", plot, says, "scale")


def hatches() -> Html:
    """The patterns that charts refer to: what is hatched is distinguished without its colour."""
    lines = tag("path", d="M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2", class_="hatch-lines")
    ground = tag("rect", width=6, height=6, class_="hatch-ground")
    pattern = tag(
        "pattern", ground, lines, id="hatch", width=6, height=6, patternUnits="userSpaceOnUse"
    )
    return tag("svg", tag("defs", pattern), class_="defs", width=0, height=0, aria_hidden="true")
