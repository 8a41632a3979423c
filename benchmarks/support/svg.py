"""Bar and line charts as SVG, readable on light and on dark pages; nothing but text is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#2f6fdb", "#e07b39", "#3a9d5d", "#b0529b", "#8a8f98", "#c9a227")
_WIDTH, _HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 56, 44
_STYLE = """<style>
 text { font: 12px system-ui, sans-serif; fill: #24292f }
 .title { font-size: 14px; font-weight: 600 }
 .grid { stroke: #d0d7de } .axis { stroke: #57606a }
 @media (prefers-color-scheme: dark) {
  text { fill: #c9d1d9 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
 }
</style>"""


@dataclass(frozen=True)
class Series:
    """One colour of a chart: a name, and a value for each label, None where there is none."""

    name: str
    values: Sequence[float | None]


def bars(title: str, unit: str, labels: Sequence[str], series: Sequence[Series]) -> str:
    """Groups of bars, one group a label, from zero up."""
    top, ticks = _scale(series)
    parts = _frame(title, unit, labels, series, ticks, top)
    group = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    width = min(48.0, group * 0.8 / max(1, len(series)))
    for place, _ in enumerate(labels):
        first = _LEFT + group * (place + 0.5) - width * len(series) / 2
        for number, one in enumerate(series):
            value = one.values[place]
            if value is None:
                continue
            x, y = first + number * width, _y(value, top)
            colour = COLOURS[number % len(COLOURS)]
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}"'
                f' height="{_HEIGHT - _BOTTOM - y:.1f}" fill="{colour}">'
                f"<title>{escape(f'{one.name}: {_short(value)} {unit}')}</title></rect>"
            )
            parts.append(_text(x + width / 2 - 1, y - 4, _short(value), "middle"))
    return _document(parts)


def lines(title: str, unit: str, labels: Sequence[str], series: Sequence[Series]) -> str:
    """Points at every label, joined."""
    top, ticks = _scale(series)
    parts = _frame(title, unit, labels, series, ticks, top)
    group = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    for number, one in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (_LEFT + group * (place + 0.5), _y(value, top), value)
            for place, value in enumerate(one.values)
            if value is not None
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y, value in points:
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
                f"<title>{escape(f'{one.name}: {_short(value)} {unit}')}</title></circle>"
            )
    return _document(parts)


def _scale(series: Sequence[Series]) -> tuple[float, list[float]]:
    """The top of the axis, and round numbers up to it."""
    largest = max((v for one in series for v in one.values if v is not None), default=1.0) or 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(power * f for f in (0.2, 0.5, 1, 2, 5) if largest / (power * f) <= 5)
    count = math.ceil(largest / step)
    return step * count, [step * i for i in range(count + 1)]


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / top


def _frame(
    title: str,
    unit: str,
    labels: Sequence[str],
    series: Sequence[Series],
    ticks: list[float],
    top: float,
) -> list[str]:
    """Title, legend, axes and their words."""
    parts = [f'<text x="{_LEFT}" y="18" class="title">{escape(title)}</text>']
    at = float(_LEFT)
    for number, one in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{at:.0f}" y="28" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(at + 14, 37, one.name))
        at += 30 + 6.6 * len(one.name)
    parts.append(_text(_WIDTH - _RIGHT, 18, unit, "end"))
    for tick in ticks:
        y = _y(tick, top)
        kind = "axis" if tick == 0 else "grid"
        ends = f'x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line {ends} class="{kind}"/>')
        parts.append(_text(_LEFT - 8, y + 4, _short(tick), "end"))
    group = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    for place, label in enumerate(labels):
        parts.append(_text(_LEFT + group * (place + 0.5), _HEIGHT - _BOTTOM + 20, label, "middle"))
    return parts


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _document(parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" role="img">'
    )
    return "\n".join([head, _STYLE, *parts, "</svg>"]) + "\n"
