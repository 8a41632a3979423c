"""Whole commands on a graph of three node types and six relations: Embertide against DGL.

    .venv/bin/python -m benchmarks.typed --scale 20 --grid 1x1 2x1

RGCN and HGT, three layers, on the files of :mod:`benchmarks.typed_dataset`. What the figures mean,
and what makes them fair, is as in :mod:`benchmarks.end_to_end`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import ClassVar

from benchmarks.end_to_end import Case, measure, show
from benchmarks.machine import limits
from benchmarks.peers import ours
from benchmarks.support.rounds import Run, save
from benchmarks.typed_dataset import CONVS, SHARES, make

PEERS = ["dgl_typed"]


class TypedCase(Case):
    """One typed graph and model."""

    write_job = staticmethod(ours.write_typed_job)
    types: ClassVar[tuple[str | None, ...]] = tuple(SHARES)


def main() -> None:
    """Measure all asked-for cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, nargs="+", default=[16], help="2^scale nodes")
    parser.add_argument("--conv", nargs="+", default=list(CONVS), choices=CONVS)
    parser.add_argument("--grid", nargs="+", default=["1x1", "2x1"])
    parser.add_argument("--rounds", type=int, default=3, help="0: only compare the results")
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        work = given.work or Path(folder)
        found: Run = {"machine": {} if given.no_limits else limits(work), "cases": []}
        for scale in given.scale:
            data = make(work / f"typed-{scale}", scale=scale)
            sizes = json.loads((data / "dataset.json").read_text())
            for conv in given.conv:
                case = TypedCase(data, Path(folder), conv, "npy", given.settle)
                systems = measure(case, PEERS, given.grid, given.rounds)
                size = {key: sizes[key] for key in ("nodes", "edges")}
                found["cases"].append({"scale": scale, "conv": conv, **size, "systems": systems})
                show(f"scale {scale}, {conv}, three node types", systems)
        save("typed", found, given.out)


if __name__ == "__main__":
    main()
