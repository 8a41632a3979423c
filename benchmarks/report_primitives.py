"""The section of docs/performance.md on primitives: Figs. 16 to 21 of the paper."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.report_words import BASELINES, PAPER, VARIANTS
from benchmarks.support.page import Page
from benchmarks.support.rounds import Run
from benchmarks.support.svg import Series, bars

HEAD = (
    "seconds",
    "ratio",
    "MiB received",
    "bytes, ratio",
    "messages",
    "wire",
    "link",
    "peak MiB",
)
"""Titles of :func:`figures`."""


def figures(run: Run, ours: Run, gigabits: float) -> list[Any]:
    """What tables say of a variant; :data:`HEAD` has the titles."""
    return [
        run["seconds"],
        run["ratio"],
        run["bytes"] / 2**20,
        run["bytes"] / max(1, ours["bytes"]),
        int(run["messages"]),
        run["total_wire_bytes"] / max(1, run["total_bytes"]),
        run["bytes"] * 8e-9 / gigabits / run["seconds"] if gigabits else None,
        run["peak_bytes"] / 2**20,
    ]


def primitives(page: Page, results: Run) -> None:
    """Figs. 16 to 21: each primitive against the paper's baseline."""
    page.add(
        "## Primitives\n\n"
        f"{results['workers']} workers, 2^{results['scale']} nodes, D = {results['width']}, links"
        f" shaped by {results['qdisc']}. {PAPER['primitives']}"
    )
    every = sorted(results["cases"], key=lambda case: float(case["gigabits"]))
    names = list(dict.fromkeys(n for case in every for n in case["primitives"]))
    for name in names:
        cases = [case for case in every if name in case["primitives"]]
        page.add(f"### {VARIANTS[name][0]}\n\n{PAPER[name]}")
        labels = [f"{case['gigabits']:g}G {case['grid']}" for case in cases]
        variants = list(cases[0]["primitives"][name])
        series = [
            Series(
                VARIANTS[name][1].get(variant, variant),
                [case["primitives"][name][variant]["ratio"] for case in cases],
            )
            for variant in variants
            if variant != "ours"
        ]
        title = f"{VARIANTS[name][0]}: a baseline's seconds by ours"
        page.draw(
            f"primitive-{name.replace('_', '-')}", title, bars(title, "times", labels, series)
        )
        page.add(_direction(name, cases))


def _direction(name: str, cases: list[Run]) -> str:
    """Whether what we measure points where the paper's figure does."""
    baseline = BASELINES[name]
    best = max(cases, key=lambda case: case["primitives"][name][baseline]["ratio"])
    ratios = [case["primitives"][name][baseline]["ratio"] for case in cases]
    same = "the same direction" if median(ratios) > 1 else "**not** the same direction"
    if against := sum(ratio < 1 for ratio in ratios):
        same += f", though ours takes longer in {against}"
    bytes_there = best["primitives"][name][baseline]["bytes"] / max(
        1, best["primitives"][name]["ours"]["bytes"]
    )
    return (
        f"*{VARIANTS[name][1][baseline]}* takes {min(ratios):.2f} to {max(ratios):.2f}"
        f" times as long as ours over {len(ratios)} settings, most at {best['gigabits']:g} Gbit/s"
        f" on {best['grid']}, with {bytes_there:.2f} times the bytes: {same}."
    )
