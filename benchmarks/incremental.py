"""What a run takes that computes the rows that have changed, beside one that computes all.

    .venv/bin/python -m benchmarks.incremental --scale 17
    .venv/bin/python -m benchmarks.incremental --scale 20 --tolerance 1e-3

*bounded*: a graph whose nodes have 20 in-edges each, of which one source of a share of the nodes is
another one each night, for SAGE (GCN's degrees of sources make changes reach further by a layer);
*rmat*: a graph with hubs for GCN, where changes reach almost everything. Runs take
turns: *full* computes all rows and keeps them, *incremental* (or *auto*) goes on from what was
kept. With ``--tolerance`` instead, RMAT graphs of which a share of edges and of features has
changed, for SAGE and GCN, each share in a case of its own.

``layers`` are the seconds of the layers, reading and keeping rows included, ``work`` those of all
stages; ``waited`` those for writes of kept rows, ``share`` the part of the edges that were gone
over, ``error`` the largest one that was measured. ``..._of_full`` are shares of a full run that
keeps nothing (*alone*).

    .venv/bin/python -m benchmarks.incremental --scale 17 --sweep 1e-4 1e-2 1e-1

compares what ``mode: auto`` chooses with both that it can choose, on the bounded graph, for each of
some shares: ``auto_of_best`` is the time of its layers as a share of the faster one's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.support.rounds import ROOT, Run, middle, ratio, save, table

NEIGHBOURS, WIDTH = 20, 128
KEYS = (
    "work", "layers", "waited", "publish", "share", "error", "layers_of_full", "work_of_full",
    "auto_of_best",
)  # fmt: skip
SHARES = (1e-5, 1e-4, 1e-2)
"""Of the edges and of the features, with a tolerance."""
_COMMAND = [str(ROOT / ".venv/bin/embertide")]


@dataclass
class Nightly:
    """A job over edges of which some change each night."""

    folder: Path
    scale: int
    tolerance: float = 0.0
    seed: int = 1

    @property
    def edges(self) -> Path:
        """The file of edges, or the first of several: the one that changes."""
        return min((self.folder / "edges").rglob("*.parquet"))

    def make_rmat(self, conv: str = "gcn") -> None:
        """A graph with hubs, and its features and model."""
        model = ["--conv", conv, "--feature-format", "npy"]
        _call("synth", str(self.folder), "--scale", str(self.scale), *model, "--quiet")

    def make_bounded(self) -> None:
        """Every node has as many in-edges, from any nodes."""
        nodes, g = 1 << self.scale, np.random.default_rng(0)
        _call("synth", str(self.folder), "--scale", "10", "--conv", "sage", "--quiet")
        target = np.repeat(np.arange(nodes), NEIGHBOURS)
        source = g.integers(0, nodes, len(target))
        pq.write_table(pa.table({"src": source, "dst": target}), self.edges)
        shutil.rmtree(self.folder / "features")
        (self.folder / "features").mkdir()
        values = g.standard_normal((nodes, WIDTH)).astype(np.float32)
        np.save(self.folder / "features" / "x.npy", values)
        manifest = self._manifest()
        uri = (self.folder / "features" / "x.npy").as_uri()
        features = {"uri": uri, "format": "npy"}
        manifest["spec"]["input"]["nodes"] = [{"count": nodes, "features": features}]
        self._write(manifest)

    def change(self, share: float) -> None:
        """Another source of one in-edge of a share of the nodes; with a tolerance, other sources
        of a share of the edges, and other features of a share of the nodes."""
        nodes, g = 1 << self.scale, np.random.default_rng(self.seed)
        self.seed += 1
        edges = pq.read_table(self.edges)
        columns = {name: edges[name].to_numpy().copy() for name in edges.column_names}
        source = next(iter(columns.values()))
        of = len(source) if self.tolerance else nodes
        at = g.choice(len(source), max(1, round(share * of)), replace=False)
        source[at] = g.integers(0, nodes, len(at))
        pq.write_table(pa.table(columns), self.edges)
        if self.tolerance:
            for features in (self.folder / "features").glob("*.npy"):
                values = np.load(features, mmap_mode="r+")
                rows = g.choice(len(values), max(1, round(share * len(values))), replace=False)
                values[rows] = g.standard_normal((len(rows), values.shape[1]), np.float32)
                values.flush()

    def run(self, mode: str, grid: str, *, keep: bool = True) -> Run:
        """A run to its end."""
        manifest = self._manifest()
        refresh = {"mode": mode, "keep": keep, "resume": "never", "tolerance": self.tolerance}
        manifest["spec"]["refresh"] = {**refresh, "maxError": 0.5} if self.tolerance else refresh
        manifest["spec"]["output"] |= {"compare": False, "keepVersions": 1}
        manifest["spec"]["inference"] = {"checkedRows": 0}
        self._write(manifest)
        report = json.loads(_call("run", str(self._job), "--grid", grid, "--json").splitlines()[-1])
        refresh = report["refresh"]
        incremental = refresh["mode"] == "incremental"
        return {
            "work": report["total_seconds"],
            "layers": report["stages"]["infer"],
            "publish": report["stages"]["publish"],
            "share": refresh["edges"] / refresh["all_edges"] if incremental else 1.0,
            "waited": report["kept"]["wait_seconds"],
            "error": refresh["error"],
            "written": report["kept"]["written_bytes"] or 0,
        }

    @property
    def _job(self) -> Path:
        return self.folder / "job.yaml"

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = yaml.safe_load(self._job.read_text())
        return manifest

    def _write(self, manifest: dict[str, Any]) -> None:
        self._job.write_text(yaml.safe_dump(manifest))


def _call(*words: str) -> str:
    done = subprocess.run([*_COMMAND, *words], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def measure(job: Nightly, share: float, grid: str, rounds: int, mode: str) -> dict[str, Run]:
    """Medians of runs over what was kept, of full runs that keep, and of full runs that do not."""
    job.run("full", grid)
    runs: dict[str, list[Run]] = {mode: [], "full": [], "alone": []}
    for _ in range(rounds):
        job.change(share)
        runs[mode].append(job.run(mode, grid))
        job.change(share)
        runs["full"].append(job.run("full", grid))
        runs["alone"].append(job.run("full", grid, keep=False))
        job.run("full", grid)
    found = {name: middle(of) for name, of in runs.items()}
    for name in (mode, "full"):
        for key in ("layers", "work"):
            found[name][f"{key}_of_full"] = ratio(runs[name], runs["alone"], key)
    return found


def sweep(job: Nightly, share: float, grid: str, rounds: int) -> dict[str, Run]:
    """Medians of runs of each mode, in turns, each over what the run before it has kept."""
    job.run("full", grid)
    runs: dict[str, list[Run]] = {"auto": [], "incremental": [], "full": []}
    for _ in range(rounds):
        for mode, of in runs.items():
            job.change(share)
            of.append(job.run(mode, grid))
    medians = {name: middle(of) for name, of in runs.items()}
    best = min(("incremental", "full"), key=lambda name: float(medians[name]["layers"]))
    medians["auto"]["auto_of_best"] = ratio(runs["auto"], runs[best], "layers")
    return medians


@dataclass(frozen=True)
class Case:
    """A graph, a model, how much changes, and how the changes are followed."""

    graph: str
    conv: str
    mode: str
    share: float
    tolerance: float = 0.0

    def run(self, scale: int, grid: str, rounds: int) -> Run:
        """Make the job and measure it."""
        with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
            job = Nightly(Path(folder) / "job", scale, self.tolerance)
            job.make_bounded() if self.graph == "bounded" else job.make_rmat(self.conv)
            run = sweep if self.mode == "sweep" else partial(measure, mode=self.mode)
            systems = run(job, share=self.share, grid=grid, rounds=rounds)
        title = f"{self.graph}, {self.conv}, scale {scale}, {self.share:g}"
        rows = [[name, *(run.get(key, "") for key in KEYS)] for name, run in systems.items()]
        print(table([title, *KEYS], rows), flush=True)
        return {**asdict(self), "scale": scale, "systems": systems}


def main() -> None:
    """Measure both graphs, or those of a tolerance."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=17, help="2^scale nodes")
    parser.add_argument("--grid", default="1x1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bounded", type=float, default=1e-4, help="share of the nodes")
    parser.add_argument("--rmat", type=float, default=2e-4, help="changed edges for each node")
    parser.add_argument("--tolerance", type=float, default=0.0, help="measure runs with it")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="with a tolerance")
    parser.add_argument("--convs", nargs="+", default=["sage", "gcn"], help="with a tolerance")
    parser.add_argument("--sweep", type=float, nargs="+", help="shares of the nodes, for auto")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    cases = [
        Case("bounded", "sage", "incremental", given.bounded),
        Case("rmat", "gcn", "auto", given.rmat),
    ]
    if given.tolerance:
        cases = [
            Case("rmat", conv, "incremental", share, given.tolerance)
            for conv in given.convs
            for share in given.shares
        ]
    if given.sweep:
        cases = [Case("bounded", "sage", "sweep", share) for share in given.sweep]
    results = [case.run(given.scale, given.grid, given.rounds) for case in cases]
    save("incremental", {"cases": results}, given.out)


if __name__ == "__main__":
    main()
