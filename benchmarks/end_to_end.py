"""Whole commands side by side: ``embertide run`` on several grids against one DGL script.

Both start from the same parquet files and end with written embeddings; processes, imports and
all are in the time. The two take turns, and each figure is a median of the turns; what to
quote is the ratio. Embertide also verifies what it wrote and publishes it atomically.

    python benchmarks/end_to_end.py --scale 20 --conv gcn gat --grid 1x1 2x1 2x2 --turns 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def make_job(folder: Path, scale: int, conv: str, heads: int) -> Path:
    """An RMAT graph of edge factor 20 with 128-wide features and a 3-layer model."""
    if not folder.exists():
        embertide = [sys.executable, "-m", "embertide", "synth", str(folder), "-q"]
        size = ["--scale", str(scale), "--conv", conv]
        subprocess.run([*embertide, *size, "--heads", str(heads)], check=True)
    return folder / "job.yaml"


def timed(command: list[str]) -> tuple[float, list[dict[str, Any]]]:
    """Seconds of the whole command, and the JSON lines it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return seconds, [json.loads(line) for line in lines]


def run_ours(job: Path, grid: str) -> dict[str, Any]:
    """One run; its wall seconds beside its own report."""
    command = [sys.executable, "-m", "embertide", "run", str(job), "--grid", grid, "--json"]
    wall, events = timed(command)
    shutil.rmtree(job.parent / "embeddings")
    return {"wall": wall, **events[-1]}


def run_dgl(job: Path, threads: int) -> dict[str, Any]:
    """One run of the baseline script."""
    with tempfile.TemporaryDirectory(dir=job.parent) as out:
        script = [sys.executable, "-W", "ignore", str(HERE / "dgl_baseline.py")]
        wall, events = timed([*script, str(job.parent), out, "--threads", str(threads)])
    return {"wall": wall, "stages": events[-1]}


def compare(job: Path, grids: list[str], turns: int, threads: int) -> dict[str, Any]:
    """Take turns; everything measured."""
    found: dict[str, Any] = {"dgl": [], **{grid: [] for grid in grids}}
    for turn in range(turns):
        found["dgl"].append(run_dgl(job, threads))
        for grid in grids:
            found[grid].append(run_ours(job, grid))
        print(f"  turn {turn + 1} of {turns}", file=sys.stderr)
    return found


def show(title: str, found: dict[str, Any]) -> None:
    """A line for the baseline and one per grid."""
    print(f"\n{title}")
    base = statistics.median(run["wall"] for run in found["dgl"])
    forward = statistics.median(run["stages"]["forward"] for run in found["dgl"])
    print(f"  {'dgl':6} wall {base:7.2f} s   forward {forward:7.2f} s")
    for grid, runs in found.items():
        if grid == "dgl":
            continue
        wall = statistics.median(run["wall"] for run in runs)
        infer = statistics.median(run["stages"]["infer"] for run in runs)
        ratios = [a["wall"] / b["wall"] for a, b in zip(runs, found["dgl"], strict=True)]
        rate = statistics.median(run["ingest_edges_per_second"] for run in runs)
        memory = [m for run in runs for m in run["memory"]]
        used = max(m["peak_bytes"] - m["baseline_bytes"] for m in memory)
        planned = memory[0]["planned_bytes"]
        print(
            f"  {grid:6} wall {wall:7.2f} s   infer   {infer:7.2f} s   ratio"
            f" {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            f"   ingest+csr {rate / 1e6:.1f} M edges/s"
            f"   memory {used / 2**20:.0f} MiB, planned {planned / 2**20:.0f}"
        )


def main() -> None:
    """Measure all asked-for combinations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, nargs="+", default=[18])
    parser.add_argument("--conv", nargs="+", default=["gcn", "gat"], choices=["gcn", "gat"])
    parser.add_argument("--grid", nargs="+", default=["1x1", "2x1", "1x2", "2x2"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--work", type=Path, help="where graphs are kept between calls")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="embertide-bench-"))
    everything = {}
    for scale in options.scale:
        for conv in options.conv:
            folder = work / f"{conv}-{scale}"
            job = make_job(folder, scale, conv, options.heads if conv == "gat" else 1)
            found = compare(job, options.grid, options.turns, os.cpu_count() or 1)
            show(f"RMAT scale {scale}, edge factor 20, 3-layer {conv}, D = 128", found)
            everything[f"{conv}-{scale}"] = found
    if options.out:
        options.out.write_text(json.dumps(everything, indent=1))
    if options.work is None:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
