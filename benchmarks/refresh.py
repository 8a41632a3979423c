"""What keeping layers costs, and what an attempt that goes on after them takes.

    .venv/bin/python -m benchmarks.refresh --scale 20 --conv gcn gat

Whole runs take turns: one that keeps no layer (*alone*), one that keeps all (*keeping*), and one
that goes on after the last of them (*resumed*), after a run of which a worker is killed as soon as
that layer is sealed. ``kept`` is in bytes, ``waited`` are the seconds for which the fullest worker
waited for its writes; ``cost`` is what keeping adds to a run's work, as a share, and ``bound`` what
a resumed run cannot be quicker than: all stages but the layers, and the last layer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.dataset import make
from benchmarks.peers import ours
from benchmarks.support.rounds import ROOT, Run, alternate, middle, ratio, save, table
from benchmarks.whole_runs import Case
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.catalog import list_layers

LAYERS = 3
KEYS = ("work", "infer", "publish", "cpu", "kept", "waited", "resumed", "cost", "bound", "of_bound")
_KILL_SECONDS = 600.0


class Kept(Case):
    """Runs of one job that keep layers, or go on after them."""

    def run(self, grid: str, resume: str) -> Run:
        """A run to its end."""
        job, output = self._job(resume), self.work / "refresh" / "embeddings"
        took = self._run(ours.command(job, grid), False, {})
        report = ours.report(took.stdout)
        assert not list_layers(open_storage(), output.as_uri())
        last = max(
            sum(s["end"] - s["start"] for s in worker["spans"] if s["layer"] >= LAYERS - 1)
            for worker in report["workers"]
        )
        return {
            "work": report["total_seconds"],
            "infer": report["stages"]["infer"],
            "publish": report["stages"]["publish"],
            "cpu": took.user + took.system,
            "kept": report["kept"]["kept_bytes"],
            "waited": report["kept"]["wait_seconds"],
            "resumed": report["kept"]["resumed"],
            "bound": report["total_seconds"] - report["stages"]["infer"] + last,
        }

    def resumed(self, grid: str) -> Run:
        """A run to its end, after one that is killed in its last layer."""
        self._kill(grid)
        run = self.run(grid, "always")
        assert run["resumed"] == LAYERS - 1, run
        return run

    def _kill(self, grid: str) -> None:
        output = self.work / "refresh" / "embeddings"
        words = ours.command(self._job("always"), grid)
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _KILL_SECONDS
        while not any(LAYERS - 1 in kept.layers for kept in _kept(output)):
            assert process.poll() is None, "the run was over too soon"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "embertide-0":
                os.kill(child.pid, signal.SIGKILL)
        assert process.wait() != 0, "the run was over too soon"

    def _job(self, resume: str) -> Path:
        job = ours.write_job(self.data, self.conv, self.features, self.work / "refresh")
        manifest = yaml.safe_load(job.read_text())
        manifest["spec"]["refresh"] = {"mode": "full", "resume": resume}
        manifest["spec"]["output"] |= {"compare": False, "keepVersions": 1}
        manifest["spec"]["inference"] = {"checkedRows": 0}
        job.write_text(yaml.safe_dump(manifest))
        return job


def _kept(output: Path) -> list[Any]:
    return list_layers(open_storage(), output.as_uri()) if (output / "_layers").exists() else []


def measure(case: Kept, grid: str, rounds: int) -> dict[str, Run]:
    """Medians of each kind of run, and what they say of each other."""
    case.run(grid, "never")
    variants = {
        "alone": lambda: case.run(grid, "never"),
        "keeping": lambda: case.run(grid, "always"),
        "resumed": lambda: case.resumed(grid),
    }
    runs = alternate(variants, rounds, case.data.name)
    found = {name: middle(of) for name, of in runs.items()}
    bound = [{"work": run["bound"]} for run in runs["alone"]]
    found["keeping"]["cost"] = round(ratio(runs["keeping"], runs["alone"], "work") - 1, 4)
    found["resumed"]["of_bound"] = ratio(runs["resumed"], bound, "work")
    return found


def main() -> None:
    """Measure all asked-for cases."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, nargs="+", default=[18], help="2^scale nodes")
    parser.add_argument("--conv", nargs="+", default=["gcn"], choices=["gcn", "gat"])
    parser.add_argument("--grid", nargs="+", default=["2x1"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        cases: list[Run] = []
        for scale, conv, grid in product(given.scale, given.conv, given.grid):
            data = make((given.work or Path(folder)) / f"rmat-{scale}", scale=scale)
            case = Kept(data, Path(folder), conv, "npy", given.settle)
            systems = measure(case, grid, given.rounds)
            sizes = json.loads((data / "dataset.json").read_text())
            of = {"scale": scale, "conv": conv, "grid": grid, "nodes": sizes["nodes"]}
            cases.append({**of, "systems": systems})
            rows = [[name, *(run.get(key, "") for key in KEYS)] for name, run in systems.items()]
            print(table([f"scale {scale}, {conv}, {grid}", *KEYS], rows), flush=True)
        save("refresh", {"cases": cases}, given.out)


if __name__ == "__main__":
    main()
