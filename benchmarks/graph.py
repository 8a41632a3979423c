"""From files to the CSR, by the kind of ids: edges a second, and what decoding alone takes.

    .venv/bin/python -m benchmarks.graph --ids dense int64 string hex --grid 1x1 2x1

Ours are the stages ``features``, ``ingest`` and ``csr`` of whole runs; features have one column, so
that hardly more than ids is read of them. Ends of edges are drawn evenly from all nodes, which
leaves caches the least to hold. *Decoding* reads the same columns with pyarrow and as many
threads, and does nothing with them (``peers/decoding.py``): no reader that uses it is faster. Files
are in the page cache: the disk is not measured.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.graph_dataset import FORMATS, KINDS, make_ids
from benchmarks.peers import ours
from benchmarks.support.commands import run
from benchmarks.support.kept import Kept, add_arguments
from benchmarks.support.rounds import Run, alternate, middle, ratio, table

STAGES = ("features", "ingest", "csr")
KEYS = (*STAGES, "graph", "millions_per_second", "graph_ratio")


def _with_rate(stages: dict[str, float], edges: int, others: float) -> Run:
    seconds = sum(stages.values())
    found = {"graph": seconds, "millions_per_second": edges / seconds / 1e6, "others": others}
    return stages | found


def _ours(data: Path, output: Path, grid: str, sizes: Run) -> Run:
    """Seconds of a run's first stages, until the CSR."""
    shutil.rmtree(output, ignore_errors=True)
    took = run(ours.command(ours.write_ids_job(data, sizes["ids"], sizes["format"], output), grid))
    report = ours.report(took.stdout)
    return _with_rate({k: report["stages"][k] for k in STAGES}, sizes["edges"], took.others)


def _decoding(data: Path, sizes: Run) -> Run:
    """Seconds of pyarrow alone on the same files."""
    took = run([sys.executable, "-m", "benchmarks.peers.decoding", str(data)])
    stages = json.loads(took.stdout.splitlines()[-1])
    return _with_rate(stages, sizes["edges"], took.others)


def measure(data: Path, work: Path, grids: list[str], rounds: int) -> dict[str, Run]:
    """System -> medians, and ratios to the first grid."""
    sizes = json.loads((data / "dataset.json").read_text())
    systems = {f"ours {grid}": partial(_ours, data, work / "out", grid, sizes) for grid in grids}
    if sizes["format"] == "parquet":
        systems["decoding"] = partial(_decoding, data, sizes)
    for path in data.rglob("*.*"):
        path.read_bytes()
    runs = alternate(systems, rounds, data.name)
    first = runs[f"ours {grids[0]}"]
    return {
        name: middle(of) | {"graph_ratio": ratio(of, first, "graph"), "runs": len(of)}
        for name, of in runs.items()
    }


def main() -> None:
    """Measure all asked-for kinds of ids and formats."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--format", nargs="+", default=["parquet"], choices=FORMATS)
    parser.add_argument("--grid", nargs="+", default=["1x1", "2x1"])
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_arguments(parser)
    given = parser.parse_args()
    about = {"nodes": given.nodes, "edges": given.edges}
    kept = Kept("graph", about, out=given.out, resume=given.resume, minutes=given.minutes)
    cases = [{"ids": ids, "format": kind} for ids, kind in product(given.ids, given.format)]
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        work = given.work or Path(folder)
        for case in kept.missing(cases, lambda case: case):
            data = work / "ids-{ids}-{format}-{edges}".format(**case, **about)
            make_ids(data, case["ids"], case["format"], given.nodes, given.edges)
            systems = measure(data, Path(folder), given.grid, given.rounds)
            kept.add({**case, "systems": systems})
            rows: list[list[Any]] = [[name, *map(of.get, KEYS)] for name, of in systems.items()]
            print(table(["{ids} ids, {format}".format(**case), *KEYS], rows), flush=True)


if __name__ == "__main__":
    main()
