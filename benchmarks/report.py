"""Draw the figures and write docs/performance.md from what the other commands measured.

    .venv/bin/python -m benchmarks.report

Reads ``benchmarks/results/*.json``; a result that is not there is left out of the page. Nothing
on the page is written by hand but its words (``report_words.py``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report_operator import section as operator_section
from benchmarks.report_words import GOALS, INTRODUCTION, PAPER, SYSTEMS, VARIANTS
from benchmarks.support.rounds import RESULTS, ROOT, Run, figure, table
from benchmarks.support.svg import Series, bars, lines

PAGE = ROOT / "docs" / "performance.md"


class Page:
    """Markdown text, and its figures as files beside it."""

    def __init__(self, path: Path) -> None:
        self.path, self._parts = path, [INTRODUCTION]
        self._figures = path.parent / path.stem

    def add(self, text: str) -> None:
        """A paragraph, a heading or a table."""
        self._parts.append(text)

    def draw(self, name: str, alternative: str, svg: str) -> None:
        """A figure."""
        self._figures.mkdir(parents=True, exist_ok=True)
        (self._figures / f"{name}.svg").write_text(svg)
        self.add(f"![{alternative}]({self._figures.name}/{name}.svg)")

    def write(self) -> None:
        """Write the page."""
        self.path.write_text("\n\n".join(self._parts) + "\n")


def machine(page: Page, found: dict[str, Run]) -> None:
    """Where it was measured, and what that machine can do."""
    page.add("## The machine")
    rows = []
    for name, results in found.items():
        where = results["where"]
        limits = results.get("machine") or {}
        rows.append(
            [
                name,
                f"{where['processor']}, {where['cores']} cores,"
                f" {where['memory_bytes'] / 2**30:.0f} GiB",
                f"{where['time']}, {where['commit']}",
                limits.get(f"copy_{limits.get('threads')}"),
                limits.get("gather_512_bytes"),
                limits.get("gemm_gflops"),
                limits.get("disk_write"),
                limits.get("disk_read"),
            ]
        )
    head = [
        "result",
        "machine",
        "time, commit",
        "copy GB/s",
        "gathers of 512 B GB/s",
        "GEMM GFLOP/s",
        "disk write GB/s",
        "disk read GB/s",
    ]
    page.add(table(head, rows))


def end_to_end(page: Page, results: Run) -> None:
    """Fig. 14: whole runs against other systems."""
    page.add("## Whole runs\n\n" + PAPER["end_to_end"])
    for case in results["cases"]:
        systems = case["systems"]
        name = f"{case['conv']}-{case['scale']}-{case['features']}"
        title = f"{case['conv'].upper()}, scale {case['scale']}, {case['features']} features"
        page.add(f"### {title}")
        labels = [SYSTEMS.get(system, system) for system in systems]
        of = [systems[system] for system in systems]
        series = [Series(key, [run[key] for run in of]) for key in ("wall", "work", "infer")]
        page.draw(f"end-to-end-{name}", title, bars(title, "seconds", labels, series))
        head = [
            "system",
            "wall s",
            "work s",
            "infer s",
            "work ratio",
            "infer ratio",
            "peak MiB",
            "largest difference",
        ]
        rows: list[list[Any]] = [
            [
                label,
                run["wall"],
                run["work"],
                run["infer"],
                run["work_ratio"],
                run["infer_ratio"],
                round(run["peak_bytes"] / 2**20),
                f"{run['max_error']:.1e}",
            ]
            for label, run in zip(labels, of, strict=True)
        ]
        page.add(table(head, rows))
        fastest = min(
            (run for system, run in systems.items() if system.startswith("ours")),
            key=lambda run: run["work"],
        )
        page.add(
            f"Our best grid: work {fastest['work_ratio']:.2f}, inference"
            f" {fastest['infer_ratio']:.2f} of the fastest peer's."
        )


def primitives(page: Page, results: Run) -> None:
    """Figs. 16 to 21: each primitive against the paper's baseline."""
    page.add(
        "## Primitives\n\n"
        f"{results['workers']} workers, 2^{results['scale']} nodes, D = {results['width']}, links"
        f" shaped by {results['qdisc']}. {PAPER['primitives']}"
    )
    names = list(dict.fromkeys(n for case in results["cases"] for n in case["primitives"]))
    for name in names:
        cases = [case for case in results["cases"] if name in case["primitives"]]
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
        head = ["link, grid", "variant", "seconds", "MiB received", "messages", "peak MiB", "ratio"]
        rows: list[list[Any]] = [
            [
                label,
                VARIANTS[name][1].get(variant, variant),
                run["seconds"],
                run["bytes"] / 2**20,
                int(run["messages"]),
                run["peak_bytes"] / 2**20,
                run["ratio"],
            ]
            for label, case in zip(labels, cases, strict=True)
            for variant, run in case["primitives"][name].items()
        ]
        page.add(
            "<details><summary>All numbers</summary>\n\n" + table(head, rows) + "\n\n</details>"
        )


def _direction(name: str, cases: list[Run]) -> str:
    """Whether what we measure points where the paper's figure does."""
    baseline, wanted = GOALS[name]
    best = max(cases, key=lambda case: case["primitives"][name][baseline]["ratio"])
    ratios = [case["primitives"][name][baseline]["ratio"] for case in cases]
    reached = best["primitives"][name][baseline]["ratio"]
    same = (
        "the same direction"
        if sum(r > 1 for r in ratios) * 2 > len(ratios)
        else ("**not** the same direction")
    )
    return (
        f"We measure {min(ratios):.2f} to {reached:.2f} times over {len(ratios)} settings, most at"
        f" {best['gigabits']:g} Gbit/s on {best['grid']} (goal {wanted:g}): {same}."
    )


def scaling(page: Page, results: Run) -> None:
    """Fig. 15: weak and strong scaling."""
    page.add("## Scaling\n\n" + PAPER["scaling"])
    for case in results["cases"]:
        grids = case["grids"]
        title = f"{case['kind']} scaling, {case['conv'].upper()}"
        page.add(f"### {title[0].upper()}{title[1:]}")
        series = [
            Series("efficiency", [of["efficiency"] for of in grids.values()]),
            Series("peak memory by one worker's", _by_first(grids, "peak_bytes")),
        ]
        name = f"scaling-{case['kind']}-{case['conv']}"
        page.draw(name, title, lines(title, "one worker = 1", list(grids), series))
        head = [
            "grid",
            "scale",
            "wall s",
            "critical CPU s",
            "efficiency",
            "MiB received a worker",
            "messages a worker",
            "peak MiB",
            "planned MiB",
        ]
        rows: list[list[Any]] = [
            [
                grid,
                case["scales"][grid],
                of["wall"],
                of["critical_cpu"],
                of["efficiency"],
                of["bytes"] / 2**20,
                int(of["messages"]),
                of["peak_bytes"] / 2**20,
                of["planned_bytes"] / 2**20,
            ]
            for grid, of in grids.items()
        ]
        page.add(table(head, rows))


def _by_first(grids: dict[str, Run], key: str) -> list[float]:
    first = next(iter(grids.values()))[key]
    return [of[key] / max(first, 1) for of in grids.values()]


def kernels(page: Page, results: Run) -> None:
    """Each kernel as a share of the machine's limits."""
    page.add(
        f"## Kernels\n\n2^{results['scale']} nodes, D = {results['width']};"
        f" {results['kernels_of']}. {PAPER['kernels']}"
    )
    found = results["kernels"]
    labels = list(found)
    series = [Series("share of the limit", [run["share"] for run in found.values()])]
    title = "Kernels as a share of what the machine can do"
    page.draw("kernels", title, bars(title, "", labels, series))
    rows: list[list[Any]] = [
        [
            name,
            run["seconds"],
            f"{figure(run['millions_per_second'])} M {run['items']}/s",
            run["limit"],
            run["share"],
            ", ".join(f"{rival} {figure(of['ratio'])}" for rival, of in run["rivals"].items()),
        ]
        for name, run in found.items()
    ]
    head = ["kernel", "seconds", "rate", "limit", "share", "our seconds by theirs"]
    page.add(table(head, rows))


def operator(page: Page, results: Run) -> None:
    """What the operator costs and how quick it is."""
    page.add(operator_section(results))


SECTIONS: dict[str, Callable[[Page, Run], None]] = {
    "end_to_end": end_to_end,
    "primitives": primitives,
    "scaling": scaling,
    "kernels": kernels,
    "operator": operator,
}


def main() -> None:
    """Write the page from whatever has been measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON files")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; figures go beside it")
    given = parser.parse_args()
    files = {name: given.results / f"{name}.json" for name in SECTIONS}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    page = Page(given.out)
    machine(page, found)
    for name, results in found.items():
        SECTIONS[name](page, results)
    page.write()
    print(f"{given.out}: {', '.join(found) or 'no results'}")


if __name__ == "__main__":
    main()
