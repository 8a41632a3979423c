"""The built-in FastRP beside a script of scipy and numpy: whole commands, in turns.

    .venv/bin/python -m benchmarks.fastrp --scale 20 --work /tmp/data

Both read the same edges and write the embeddings of all nodes. The random numbers differ, so the
rows are not compared here; tests hold ours to the definition in float64.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from argparse import ArgumentParser
from functools import partial
from pathlib import Path

from benchmarks.dataset import make
from benchmarks.peers import ours
from benchmarks.support.commands import drop_cached, run
from benchmarks.support.rounds import Run, alternate, middle, ratio, table


def _script(data: Path, folder: Path) -> Run:
    drop_cached(data / "edges")
    module = [sys.executable, "-m", "benchmarks.peers.scipy_fastrp"]
    took = run([*module, "--data", str(data), "--out", str(folder / "script.npy")], watch=True)
    return {"wall": took.wall, "peak_bytes": took.peak_bytes}


def _ours(data: Path, folder: Path, grid: str) -> Run:
    output = folder / "ours"
    shutil.rmtree(output, ignore_errors=True)
    drop_cached(data / "edges")
    took = run(ours.command(ours.write_fastrp_job(data, output), grid), watch=True)
    return {"wall": took.wall, "peak_bytes": took.peak_bytes}


def main() -> None:
    """Measure and print one table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=20, help="2^scale nodes")
    parser.add_argument("--grid", nargs="+", default=["1x1", "1x2"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="keeps the data set")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as name:
        folder = Path(name)
        data = make((given.work or folder) / f"rmat-{given.scale}", scale=given.scale)
        systems = {"script": partial(_script, data, folder)}
        systems |= {f"ours {grid}": partial(_ours, data, folder, grid) for grid in given.grid}
        runs = alternate(systems, given.rounds, f"FastRP, scale {given.scale}", [])
    rows = []
    for system, of in runs.items():
        found = middle(of)
        peak = round(found["peak_bytes"] / 2**20)
        rows.append([system, found["wall"], ratio(of, runs["script"], "wall"), peak])
    print(table(["system", "wall s", "of the script", "peak MiB"], rows))


if __name__ == "__main__":
    main()
