"""Weak and strong scaling of whole runs over 1, 2, 4 and 8 workers of one machine.

    .venv/bin/python -m benchmarks.scaling

More workers than cores take turns, so wall-clock time says little about eight machines. What
carries over is each worker's peak memory beyond its imports, the bytes and messages that a worker
of so many hosts would send, as planned (here rows are read in place, and
`tests/distributed/test_planned_traffic.py` compares plans with runs), and the *critical path*, the
CPU seconds of the worker that used most of them (user and system, sampled while it runs; one thread
each). *efficiency* is edges per second and worker on that path, compared with one worker (Deal,
section 4.3, Fig. 15). Strong: one graph for all; weak: twice the nodes for twice the workers.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import embertide
from benchmarks.dataset import make
from benchmarks.machine import limits
from benchmarks.peers import ours
from benchmarks.support.commands import drop_cached, run
from benchmarks.support.kept import Kept, add_arguments
from benchmarks.support.rounds import Run, alternate, middle, table

GRIDS = ("1x1", "2x1", "2x2", "4x2")
WORKER = "embertide-"
"""What worker processes are called, before their rank."""


def one_run(data: Path, conv: str, grid: str, work: Path) -> Run:
    """A run of the command, watched."""
    output = work / f"scaling-{grid}"
    shutil.rmtree(output, ignore_errors=True)
    job = ours.write_job(data, conv, "npy", output)
    drop_cached(data)
    took = run(ours.command(job, grid, threads=1), watch=True, memory=False)
    report = ours.report(took.stdout)
    planned = embertide.plan(job, grid=grid).traffic
    shutil.rmtree(output)
    cpu = [seconds for name, seconds in took.cpu.items() if name.startswith(WORKER)]
    memory = [rank["peak_bytes"] - rank["baseline_bytes"] for rank in report["memory"]]
    return {
        "wall": took.wall,
        "work": report["total_seconds"],
        "critical_cpu": max(cpu, default=0.0),
        "total_cpu": sum(cpu),
        "bytes": sum(entry.bytes_per_worker for entry in planned),
        "messages": sum(entry.messages for entry in planned),
        "peak_bytes": max(memory),
        "total_peak_bytes": sum(memory),
        "planned_bytes": max(rank["planned_bytes"] for rank in report["memory"]),
        "edges": report["edges"],
        "stages": report["stages"],
        "others": took.others,
    }


def efficiency(found: Run) -> None:
    """Add each grid's edges per second and worker on the critical path, by the first one's."""
    rates = {}
    for grid, of in found.items():
        workers = int(grid.split("x")[0]) * int(grid.split("x")[1])
        rates[grid] = of["edges"] / max(of["critical_cpu"], 1e-3) / workers
    first = next(iter(rates.values()))
    for grid, rate in rates.items():
        found[grid]["efficiency"] = round(rate / first, 4)


def show(title: str, found: Run) -> None:
    """One table."""
    mib = 2**20
    rows: list[list[Any]] = [
        [
            grid,
            of["wall"],
            of["critical_cpu"],
            of["efficiency"],
            of["bytes"] / mib,
            int(of["messages"]),
            of["peak_bytes"] / mib,
            of["planned_bytes"] / mib,
        ]
        for grid, of in found.items()
    ]
    head = [
        "grid",
        "wall s",
        "critical CPU s",
        "efficiency",
        "MiB between hosts a worker",
        "messages a worker",
        "peak MiB",
        "planned MiB",
    ]
    print(f"\n{title}\n\n" + table(head, rows), flush=True)


def main() -> None:
    """Measure strong and weak scaling of both models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=18, help="2^scale nodes, strong")
    parser.add_argument("--weak-scale", type=int, default=16, help="2^scale nodes of one worker")
    parser.add_argument("--conv", nargs="+", default=["gcn", "gat"], choices=["gcn", "gat"])
    parser.add_argument("--grid", nargs="+", default=list(GRIDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    add_arguments(parser)
    given = parser.parse_args()
    about = {"rounds": given.rounds}
    kept = Kept("scaling", about, out=given.out, resume=given.resume, minutes=given.minutes)
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        work = given.work or Path(folder)
        for key in kept.missing(keys(given), dict):
            kept.limits(lambda: {} if given.no_limits else limits(work))
            found = measure(key, given.rounds, work, Path(folder))
            kept.add({**key, "grids": found})
            show(f"{key['kind']} scaling, {key['conv']}", found)


def keys(given: argparse.Namespace) -> list[Run]:
    """What tells the cases apart."""
    return [
        {"kind": kind, "conv": conv, "scales": {g: scale_for(kind, g, given) for g in given.grid}}
        for kind, conv in product(("strong", "weak"), given.conv)
    ]


def measure(key: Run, rounds: int, work: Path, folder: Path) -> dict[str, Run]:
    """Grid -> medians over the rounds, and its efficiency."""
    data = {g: make(work / f"rmat-{scale}", scale=scale) for g, scale in key["scales"].items()}
    systems = {
        grid: lambda grid=grid: one_run(data[grid], key["conv"], grid, folder) for grid in data
    }
    runs = alternate(systems, rounds, f"{key['kind']} {key['conv']}")
    medians = {grid: middle(of) for grid, of in runs.items()}
    efficiency(medians)
    return medians


def scale_for(kind: str, grid: str, given: argparse.Namespace) -> int:
    """The same for all grids, or as many nodes more as there are workers."""
    p, m = map(int, grid.split("x"))
    return int(given.scale if kind == "strong" else given.weak_scale + (p * m).bit_length() - 1)


if __name__ == "__main__":
    main()
