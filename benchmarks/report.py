"""Draw the figures and write docs/performance.md and docs/performance/parts.md from results.

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

from benchmarks import report_disk
from benchmarks.report_graph import section as graph_section
from benchmarks.report_operator import section as operator_section
from benchmarks.report_primitives import primitives
from benchmarks.report_store import section as store_section
from benchmarks.report_summary import machine_of, summary
from benchmarks.report_words import INTRODUCTION, PAPER, PARTS_TITLE, SYSTEMS, TITLE
from benchmarks.support.page import Page
from benchmarks.support.rounds import RESULTS, ROOT, Run, figure, table
from benchmarks.support.svg import Series, bars, lines

PAGE = ROOT / "docs" / "performance.md"


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
                machine_of(results),
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
    for case in sorted(results["cases"], key=lambda case: int(case["scale"])):
        name = f"end-to-end-{case['conv']}-{case['scale']}-{case['features']}"
        title = f"{case['conv'].upper()}, scale {case['scale']}, {case['features']} features"
        _systems(page, case["systems"], name, title)


def typed(page: Page, results: Run) -> None:
    """Whole runs on several node types and relations."""
    page.add("## Whole runs on typed graphs\n\n" + PAPER["typed"])
    for case in results["cases"]:
        name = f"typed-{case['conv']}-{case['scale']}"
        _systems(page, case["systems"], name, f"{case['conv'].upper()}, scale {case['scale']}")


def _systems(page: Page, systems: Run, name: str, title: str) -> None:
    """A case's systems side by side."""
    page.add(f"### {title}")
    labels = [SYSTEMS.get(system, system) for system in systems]
    of = list(systems.values())
    series = [Series(key, [run[key] for run in of]) for key in ("wall", "work", "infer")]
    page.draw(name, title, bars(title, "seconds", labels, series))
    head = [
        "system",
        "wall s",
        "work s",
        "infer s",
        "work ratio",
        "CPU s",
        "peak MiB",
        "largest difference",
        "runs",
    ]
    rows: list[list[Any]] = [
        [
            label,
            run["wall"],
            run["work"],
            run["infer"],
            run["work_ratio"],
            run["user"] + run["system"] if "user" in run else None,
            round(run["peak_bytes"] / 2**20),
            f"{run['max_error']:.1e}",
            run["runs"],
        ]
        for label, run in zip(labels, of, strict=True)
    ]
    page.add(table(head, rows))
    fastest = min(
        (run for system, run in systems.items() if system.startswith("ours")),
        key=lambda run: run["work"],
    )
    page.add(
        f"Our best grid: wall {fastest['wall_ratio']:.2f}, work {fastest['work_ratio']:.2f},"
        f" inference {fastest['infer_ratio']:.2f} of the fastest peer's."
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
        received = Series(
            "MiB between hosts a worker", [of["bytes"] / 2**20 for of in grids.values()]
        )
        moved = f"{title}: what a worker moves between hosts"
        page.draw(f"{name}-bytes", moved, bars(moved, "MiB", list(grids), [received]))
        head = [
            "grid",
            "scale",
            "wall s",
            "critical CPU s",
            "efficiency",
            "MiB between hosts a worker",
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


def graph(page: Page, results: Run) -> None:
    """Edges a second from files to the CSR, by the kind of ids."""
    page.add(graph_section(results))


def store(page: Page, results: Run) -> None:
    """Whole runs from a store and to it."""
    page.add(store_section(results))


def out_of_core(page: Page, results: Run) -> None:
    """Whole runs with tensors on disk."""
    page.add(report_disk.out_of_core(results))


def large(page: Page, results: Run) -> None:
    """One run on a graph many times larger than its memory."""
    page.add(report_disk.large(results))


def operator(page: Page, results: Run) -> None:
    """What the operator costs and how quick it is."""
    page.add(operator_section(results))


SECTIONS: dict[str, Callable[[Page, Run], None]] = {
    "end_to_end": end_to_end,
    "typed": typed,
    "primitives": primitives,
    "scaling": scaling,
    "graph": graph,
    "store": store,
    "out_of_core": out_of_core,
    "large": large,
    "kernels": kernels,
    "operator": operator,
}


PARTS = ("primitives", "scaling", "kernels")
"""Sections of the second page, which lies in the folder of the figures."""


def main() -> None:
    """Write the pages from whatever has been measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON files")
    parser.add_argument(
        "--out",
        type=Path,
        default=PAGE,
        help="the page; figures and the second page go into the folder of its name",
    )
    given = parser.parse_args()
    files = {name: given.results / f"{name}.json" for name in SECTIONS}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    figures = given.out.with_suffix("")
    page, parts = Page(given.out, TITLE, figures), Page(figures / "parts.md", PARTS_TITLE, figures)
    if short := summary(found):
        page.add(short)
    page.add(INTRODUCTION)
    pages = [page]
    if any(name in found for name in PARTS):
        pages.append(parts)
        page.add(f"[{PARTS_TITLE.removeprefix('# ')}]({figures.name}/parts.md) has its own page.")
    machine(page, found)
    for name, results in found.items():
        SECTIONS[name](parts if name in PARTS else page, results)
    for one in pages:
        one.write()
    print(f"{given.out}: {', '.join(found) or 'no results'}")


if __name__ == "__main__":
    main()
