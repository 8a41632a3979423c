"""Each primitive against the paper's baseline, on eight workers over shaped links.

    sudo .venv/bin/python -m benchmarks.primitives --gigabits 1 5 25

Every worker is a process in a network namespace of its own; its link to the others is shaped to
the rate that is asked for (``support/network.py``). Variants take turns; *seconds* is the
slowest rank's, *bytes* what the rank that receives most receives, *messages* what the rank that
sends most sends, *ratio* a baseline's seconds by ours, round by round. Results are compared
before anything is measured. Eight workers share the machine's cores, so computing is slower
than on eight machines and the fastest links are not reached: *reached* says what eight workers
that only send to each other get. Needs root; without it ``--loopback`` measures on loopback.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from benchmarks import tasks
from benchmarks.dataset import make
from benchmarks.machine import limits
from benchmarks.support.network import Network, NoNetwork, network
from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table
from benchmarks.support.workers import Workers, workers

WORKERS = 8
GRIDS = ("1x8", "2x4", "4x2", "8x1")
SAME = 1e-5
"""Largest difference between two variants' results, as a share of their largest value."""

MOST_REACHED = 1.5
"""More than this share of a link's rate is a sign that ranks share memory instead of links."""

AXES = {
    "gemm": "feature",
    "sddmm": "feature",
    "spmm": "graph",
    "spmm_with_ids": "graph",
    "spmm_with_edge_values": "graph",
    "overlap": "graph",
}
"""The axis whose ranks a primitive connects; on an axis of one rank there is nothing to tell."""


def concerns(primitive: str, p: int, m: int) -> bool:
    """Whether the variants of a primitive differ on a grid."""
    return {"feature": m, "graph": p}.get(AXES.get(primitive, ""), WORKERS) > 1


def measure(ranks: Workers, primitive: str, rounds: int, title: str) -> dict[str, Run]:
    """Variant -> medians over the rounds, and its ratio to ours."""
    variants = tasks.PRIMITIVES[primitive]
    for name in variants.keys() - {"ours"}:
        error = max(ranks.call(tasks.compare, primitive, name))
        if not error < SAME:
            sys.exit(f"{title}: {name} is wrong: it differs from ours by {error}")
    runs = alternate({name: _once(ranks, primitive, name) for name in variants}, rounds, title)
    found = {name: middle(of) for name, of in runs.items()}
    for name, of in runs.items():
        found[name]["ratio"] = ratio(of, runs["ours"], "seconds")
    return found


def _once(ranks: Workers, primitive: str, variant: str) -> Callable[[], Run]:
    def run() -> Run:
        answers = ranks.call(tasks.measure, primitive, variant)
        largest = {key: max(answer[key] for answer in answers) for key in answers[0]}
        return largest | {"total_bytes": sum(answer["bytes"] for answer in answers)}

    return run


def show(title: str, found: dict[str, dict[str, Run]]) -> None:
    """One table of a grid at a rate."""
    rows: list[list[Any]] = [
        [
            primitive,
            variant,
            run["seconds"],
            run["bytes"] / 2**20,
            int(run["messages"]),
            run["peak_bytes"] / 2**20,
            run["ratio"],
        ]
        for primitive, variants in found.items()
        for variant, run in variants.items()
    ]
    head = ["primitive", "variant", "seconds", "MiB received", "messages", "peak MiB", "ratio"]
    print(f"\n{title}\n\n" + table(head, rows), flush=True)


def run_all(given: argparse.Namespace, links: Network | None, folder: Path) -> list[Run]:
    """Every rate, grid and primitive, until the time is up."""
    found: list[Run] = []
    begin = time.perf_counter()
    data = make(folder / "graph", scale=given.scale, width=8, files=2 * WORKERS)
    with workers(WORKERS, links) as ranks:
        for rate in given.gigabits if links else [0.0]:
            if links:
                links.shape(rate)
            reached = min(ranks.call(tasks.bandwidth, given.mib))
            if links and reached > MOST_REACHED * rate:
                sys.exit(f"{reached:.1f} Gbit/s over links of {rate:g}: bytes bypass the network")
            for grid in given.grid:
                p, m = map(int, grid.split("x"))
                if time.perf_counter() - begin > given.minutes * 60:
                    print(f"time is up before {rate} Gbit/s on {grid}", file=sys.stderr)
                    return found
                shape = tasks.Shape(p, m, given.scale, given.width, data / "edges")
                ranks.call(tasks.prepare, shape)
                title = f"{rate:g} Gbit/s, grid {grid}" if links else f"loopback, grid {grid}"
                cases = {
                    name: measure(ranks, name, given.rounds, f"{title} {name}")
                    for name in given.primitive
                    if concerns(name, p, m)
                }
                about = {"gigabits": rate, "reached": round(reached, 3), "grid": grid}
                found.append({**about, "primitives": cases})
                show(f"{title} ({reached:.2f} Gbit/s reached)", cases)
    return found


def main() -> None:
    """Measure all asked-for cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabits", type=float, nargs="+", default=[1.0, 5.0, 25.0])
    parser.add_argument("--grid", nargs="+", default=list(GRIDS), choices=GRIDS)
    parser.add_argument(
        "--primitive", nargs="+", default=list(tasks.PRIMITIVES), choices=tasks.PRIMITIVES
    )
    parser.add_argument("--scale", type=int, default=15, help="2^scale nodes, 20 edges each")
    parser.add_argument("--width", type=int, default=128, help="columns of the features")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=20, help="start no grid after that")
    parser.add_argument("--mib", type=int, default=16, help="sent by a rank to find the rate")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, no shaping")
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        machine = {} if given.no_limits else limits(Path(folder))
        try:
            with nullcontext() if given.loopback else network(WORKERS) as links:
                cases = run_all(given, links, Path(folder))
        except NoNetwork as error:
            sys.exit(f"no shaped network: {error}. --loopback measures without one.")
    about = {"scale": given.scale, "width": given.width, "workers": WORKERS}
    qdisc = links.qdisc if links else "none"
    save("primitives", {"machine": machine, **about, "qdisc": qdisc, "cases": cases}, given.out)


if __name__ == "__main__":
    main()
