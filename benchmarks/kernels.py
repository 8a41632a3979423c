"""Each kernel as a share of the machine's limits, and beside DGL, torch and Arrow.

    .venv/bin/python -m benchmarks.kernels --scale 18

*share* is the least that a kernel must read and write by the time it takes, as a part of what
this machine reached in the same run (copy bandwidth of all cores, random gathers of 512 bytes,
or products); above 1 means that caches help. *ratio* is our seconds by the rival's, round by round.
Inputs are in memory; results are compared with the rival's before anything is measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.kernel_calls import KERNELS
from benchmarks.kernel_inputs import Bench, Calls
from benchmarks.machine import limits
from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table
from embertide.kernels import native
from embertide.kernels.threads import set_threads


def measure(name: str, calls: Calls, rounds: int, machine: Run) -> Run:
    """Seconds, rate, share of the limit, and ratio to each rival."""
    result = calls.ours()
    for rival, call in calls.rivals.items():
        theirs = call()
        if calls.same is not None and not calls.same(result, theirs):
            sys.exit(f"{name}: the result is not {rival}'s")
        del theirs
    del result
    systems = {"ours": _timed(calls.ours)}
    systems |= {rival: _timed(call) for rival, call in calls.rivals.items()}
    runs = alternate(systems, rounds, name)
    seconds = middle(runs["ours"])["seconds"]
    what, items = calls.items
    bound = machine[f"copy_{machine['threads']}" if calls.limit == "copy" else calls.limit]
    return {
        "seconds": seconds,
        "items": what,
        "millions_per_second": round(items / seconds / 1e6, 3),
        "billions_per_second": round(calls.least / seconds / 1e9, 3),
        "limit": calls.limit,
        "share": round(calls.least / seconds / 1e9 / bound, 4),
        "rivals": {
            rival: {"seconds": middle(of)["seconds"], "ratio": ratio(runs["ours"], of, "seconds")}
            for rival, of in runs.items()
            if rival != "ours"
        },
    }


def _timed(call: Callable[[], Any]) -> Callable[[], Run]:
    def run() -> Run:
        start = time.perf_counter()
        call()
        return {"seconds": time.perf_counter() - start}

    return run


def show(found: dict[str, Run]) -> None:
    """One table."""
    rows: list[list[Any]] = [
        [
            name,
            run["seconds"],
            f"{run['millions_per_second']:.1f} M {run['items']}/s",
            run["billions_per_second"],
            run["share"],
            ", ".join(f"{rival} {of['ratio']:.2f}" for rival, of in run["rivals"].items()),
        ]
        for name, run in found.items()
    ]
    head = ["kernel", "seconds", "rate", "GB/s or GFLOP/s", "share of limit", "ratio to rivals"]
    print("\n" + table(head, rows))


def main() -> None:
    """Measure all asked-for kernels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=18, help="2^scale nodes, 20 edges each")
    parser.add_argument("--width", type=int, default=128, help="columns of the features")
    parser.add_argument("--kernel", nargs="+", default=list(KERNELS), choices=KERNELS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512, help="arrays of the machine's limits")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    set_threads(threads)
    machine = limits(Path(tempfile.gettempdir()), mib=given.mib)
    bench = Bench(given.scale, given.width)
    found = {
        name: measure(name, KERNELS[name](bench), given.rounds, machine) for name in given.kernel
    }
    show(found)
    about = {"scale": given.scale, "width": given.width, "kernels_of": native.describe()}
    save("kernels", {"machine": machine, **about, "kernels": found}, given.out)


if __name__ == "__main__":
    main()
