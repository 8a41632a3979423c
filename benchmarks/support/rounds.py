"""Rounds of alternating runs, their medians and ratios, and the JSON files they are kept in.

Machines differ and so do hours on one machine; what can be quoted is the ratio of two things
that took turns. So every comparison runs its variants one after the other, round by round, in
an order that rotates.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"

_MEASURED = ("worker", "operator", "benchmarks", ":!benchmarks/results", "uv.lock")

Run = dict[str, Any]
"""What one run measured; numbers may be nested in dictionaries."""


def alternate(
    variants: Mapping[str, Callable[[], Run]],
    rounds: int,
    title: str = "",
    once: Collection[str] = (),
) -> dict[str, list[Run]]:
    """Run every variant once a round; the order rotates by one from round to round.

    Args:
        once: variants that run in the first round only, because they take long.
    """
    names = list(variants)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            if number == 0 or name not in once:
                runs[name].append(variants[name]())
        print(f"  {title} round {number + 1} of {rounds}", file=sys.stderr)
    return runs


def middle(runs: list[Run]) -> Run:
    """The median of every number that all runs have, nested dictionaries included."""
    found: Run = {}
    for key, first in runs[0].items():
        values = [run[key] for run in runs if key in run]
        if len(values) < len(runs):
            continue
        if isinstance(first, dict):
            found[key] = middle(values)
        elif isinstance(first, int | float) and not isinstance(first, bool):
            found[key] = round(statistics.median(values), 6)
        else:
            found[key] = first
    return found


def ratio(runs: list[Run], base: list[Run], key: str) -> float:
    """The median over the rounds of ``runs`` by ``base``, round by round, as far as both have."""
    pairs = zip(runs, base, strict=False)
    ratios: list[float] = [a[key] / b[key] for a, b in pairs if b[key]]
    return round(statistics.median(ratios), 4)


def save(name: str, found: Run, out: Path | None = None) -> Path:
    """Write results as JSON, with where they were measured; returns the file.

    Args:
        out: the file; by default ``benchmarks/results/<name>.json``.
    """
    path = out or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"where": where(), **found}, indent=1) + "\n")
    print(f"results: {path}", file=sys.stderr)
    return path


def where() -> dict[str, Any]:
    """The machine, the versions and the time, for whoever reads the numbers later."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    # The last commit that changed what is measured: not one that keeps results or words.
    changed = ["git", "log", "-1", "--format=%h", "--", *_MEASURED]
    commit = subprocess.run(changed, cwd=ROOT, capture_output=True, text=True)
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or "unknown",
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


class Load:
    """How busy other processes keep the machine while something is measured."""

    def __init__(self) -> None:
        self._begin = self._now()

    def others(self) -> float:
        """Cores that were kept busy by processes that are not ours, since the start.

        Of this machine or, where it is a virtual one that is told so, of its host's.
        """
        busy, own, clock = (b - a for a, b in zip(self._begin, self._now(), strict=True))
        return round(max(0.0, busy - own) / max(clock, 1e-3), 3)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
        ticks = [int(word) for word in line.split()[1:]]
        busy = (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")
        return busy, sum(os.times()[:4]), time.perf_counter()


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table; floats with three significant digits."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(figure, row)) + " |" for row in rows]
    return "\n".join(lines)


def figure(value: Any) -> str:
    """A number as people read it."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if value == 0:
        return "0"
    digits = max(0, 2 - int(f"{value:e}".split("e")[1]))
    return f"{value:,.{min(digits, 8)}f}"
