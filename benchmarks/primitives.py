"""Each primitive against the paper's baseline, on eight workers over shaped links.

    sudo .venv/bin/python -m benchmarks.primitives --gigabits 0.25 1 5

Every worker is a process in a network namespace of its own; its link to the others is shaped to
the rate that is asked for (``support/network.py``). Variants take turns; *seconds* is the
slowest rank's, *bytes* what the rank that receives most receives, *messages* what the rank that
sends most sends, *ratio* a baseline's seconds by ours, round by round. *Wire* is what all
interfaces received by what was counted; where one received less, bytes have bypassed the network
and the command ends. *Link* is the share of the time in which a link at its rate carries those
bytes: far below 1 something else than the network is measured. Results are compared before
anything is measured. Eight workers share the machine's cores, so computing is slower than on
eight machines and the fastest links are not reached: *reached* says what eight workers that only
send to each other get. Needs root; without it ``--loopback`` measures on loopback.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path

from benchmarks import tasks
from benchmarks.case import Shape, draw
from benchmarks.machine import limits
from benchmarks.report_primitives import HEAD, figures
from benchmarks.support.kept import Kept
from benchmarks.support.network import Network, NoNetwork, network
from benchmarks.support.rounds import Run, alternate, middle, ratio, table
from benchmarks.support.workers import Workers, workers

WORKERS = 8
GRIDS = ("1x8", "2x4", "4x2", "8x1")
SAME = 1e-4
"""Largest difference between two variants' results, as a share of their largest value: float32 sums
over the edges of a hub, in other orders."""

MOST_REACHED = 1.5
"""More than this share of a link's rate is a sign that ranks share memory instead of links."""

AXES = {
    "gemm": "feature",
    "sddmm": "feature",
    "spmm": "graph",
    "spmm_with_ids": "graph",
    "spmm_with_edge_values": "graph",
    "overlap": "graph",
    "features_summed": "graph",
}
"""The axis whose ranks a primitive connects; on an axis of one rank there is nothing to tell."""


def concerns(primitive: str, p: int, m: int) -> bool:
    """Whether the variants of a primitive differ on a grid."""
    return {"feature": m, "graph": p}.get(AXES.get(primitive, ""), WORKERS) > 1


def compare(ranks: Workers, primitive: str, title: str) -> None:
    """End the command unless all variants have the same result. Makes what they work on."""
    for name in tasks.PRIMITIVES[primitive].keys() - {"ours"}:
        error = max(ranks.call(tasks.compare, primitive, name))
        if not error < SAME:
            sys.exit(f"{title}: {name} is wrong: it differs from ours by {error}")


def measure(
    ranks: Workers, primitive: str, given: argparse.Namespace, title: str, *, shaped: bool
) -> dict[str, Run]:
    """Variant -> medians over the rounds, its ratio to ours, and of how many runs they are."""
    variants = tasks.PRIMITIVES[primitive]
    once = {name: _once(ranks, primitive, name, shaped=shaped) for name in variants}
    runs = alternate(once, 1, title)
    most = given.slow * runs["ours"][0]["seconds"]
    quick = {name: once[name] for name, (run,) in runs.items() if run["seconds"] <= most}
    for name, of in alternate(quick, given.rounds - 1, f"{title}, again").items():
        runs[name] += of
    found = {name: middle(of) | {"runs": len(of)} for name, of in runs.items()}
    for name, of in runs.items():
        found[name]["ratio"] = ratio(of, runs["ours"], "seconds")
    return found


def _once(ranks: Workers, primitive: str, variant: str, *, shaped: bool) -> Callable[[], Run]:
    def run() -> Run:
        answers = ranks.call(tasks.measure, primitive, variant)
        if shaped:
            check_wire(f"{primitive}, {variant}", answers)
        largest = {key: max(answer[key] for answer in answers) for key in answers[0]}
        total = {key: sum(answer[key] for answer in answers) for key in ("bytes", "wire_bytes")}
        return largest | {"total_bytes": total["bytes"], "total_wire_bytes": total["wire_bytes"]}

    return run


def check_wire(title: str, answers: list[Run]) -> None:
    """End the command where a rank was given bytes that its interface has not received."""
    for rank, answer in enumerate(answers):
        if answer["wire_bytes"] < answer["bytes"]:
            sys.exit(
                f"{title}: rank {rank} counted {answer['bytes']} bytes, but {answer['wire_bytes']}"
                " came over its interface: bytes bypass the network"
            )


def show(title: str, found: dict[str, dict[str, Run]], gigabits: float) -> None:
    """One table of a grid at a rate."""
    rows = [
        [primitive, variant, *figures(run, variants["ours"], gigabits)]
        for primitive, variants in found.items()
        for variant, run in variants.items()
    ]
    print(f"\n{title}\n\n" + table(["primitive", "variant", *HEAD], rows), flush=True)


def run_all(given: argparse.Namespace, links: Network | None, kept: Kept, folder: Path) -> None:
    """Every grid, rate and primitive that the file lacks, until the time is up."""
    rates = given.gigabits if links else [0.0]
    keys = [{"gigabits": rate, "grid": grid} for grid, rate in product(given.grid, rates)]
    kept.limits(lambda: {} if given.no_limits else limits(folder))
    data = draw(folder, scale=given.scale, width=given.width)
    with workers(WORKERS, links) as ranks:
        reached: dict[float, float] = {}
        prepared = ""
        for key in kept.missing(keys, dict):
            rate, grid = key["gigabits"], key["grid"]
            if links:
                links.shape(rate)
            if rate not in reached:
                reached[rate] = _reached(ranks, links, rate, given.mib)
            if grid != prepared:
                _prepare(ranks, grid, data, given.primitive)
            prepared = grid
            kept.add(key | _case(ranks, links, key, reached[rate], given))


def _reached(ranks: Workers, links: Network | None, rate: float, mib: int) -> float:
    """What ranks that only send to each other reach at a rate."""
    reached: float = min(ranks.call(tasks.bandwidth, mib))
    if links and reached > MOST_REACHED * rate:
        sys.exit(f"{reached:.1f} Gbit/s over links of {rate:g}: bytes bypass the network")
    return round(reached, 3)


def _prepare(ranks: Workers, grid: str, data: Path, primitives: list[str]) -> None:
    """Make a grid's case, and compare all variants on it."""
    p, m = map(int, grid.split("x"))
    ranks.call(tasks.prepare, Shape(p, m, data))
    for name in primitives:
        if concerns(name, p, m):
            compare(ranks, name, f"grid {grid} {name}")


def _case(
    ranks: Workers, links: Network | None, key: Run, reached: float, given: argparse.Namespace
) -> Run:
    """All primitives on the grid that was prepared, at one rate."""
    p, m = map(int, key["grid"].split("x"))
    title = f"{key['gigabits']:g} Gbit/s" if links else "loopback"
    title += f", grid {key['grid']}"
    cases = {
        name: measure(ranks, name, given, f"{title} {name}", shaped=links is not None)
        for name in given.primitive
        if concerns(name, p, m)
    }
    show(f"{title} ({reached:.2f} Gbit/s reached)", cases, key["gigabits"])
    return {"reached": reached, "primitives": cases}


def main() -> None:
    """Measure all asked-for cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabits", type=float, nargs="+", default=[0.25, 1.0, 5.0])
    parser.add_argument("--grid", nargs="+", default=list(GRIDS), choices=GRIDS)
    parser.add_argument(
        "--primitive", nargs="+", default=list(tasks.PRIMITIVES), choices=tasks.PRIMITIVES
    )
    parser.add_argument("--scale", type=int, default=18, help="2^scale nodes, 20 edges each")
    parser.add_argument("--width", type=int, default=128, help="columns of the features")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--slow", type=float, default=3, help="times ours: such variants are timed once"
    )
    parser.add_argument("--minutes", type=float, default=20, help="start no grid after that")
    parser.add_argument("--mib", type=int, default=16, help="sent by a rank to find the rate")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, no shaping")
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        try:
            with nullcontext() if given.loopback else network(WORKERS) as links:
                about = {"scale": given.scale, "width": given.width, "rounds": given.rounds}
                about |= {"workers": WORKERS, "qdisc": links.qdisc if links else "none"}
                kept = Kept(
                    "primitives", about, out=given.out, resume=given.resume, minutes=given.minutes
                )
                run_all(given, links, kept, Path(folder))
        except NoNetwork as error:
            sys.exit(f"no shaped network: {error}. --loopback measures without one.")


if __name__ == "__main__":
    main()
