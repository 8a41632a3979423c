"""Memory that runs take, held against their plans, over graphs of very different shapes.

    python benchmarks/memory.py                       every shape, small enough for a laptop
    python benchmarks/memory.py --times 16 wide       64 M nodes and 128 M edges of width 8
    python benchmarks/memory.py wide@1x1,2x2 gat@2x1  some shapes, each on grids of its own

Each shape is made up, planned and run on its grids; the worker that took most counts. A plan is of
the most that threads may hold at one moment, and on a busy machine they may never meet: a run that
took too little is run again, up to three times in all, and the most of all runs counts. The exit
code is 1 where a peak is more than ``--within`` away from its plan, in either direction, or where a
stage that ``--stage`` names takes so much more than its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import yaml

import embertide
from benchmarks.memory_types import COUNTS, EDGES, write_types
from embertide.edge.synth.job import synthesize
from embertide.edge.synth.options import SynthOptions
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import StorageSettings

MIB = 1 << 20
RUNS = 3
"""At most, until one takes what is planned."""


@dataclass(frozen=True)
class Shape:
    """A made-up graph and the grids that it runs on; sizes grow with ``--times``.

    Attributes:
        compared: a version is published first, with which the others are compared.
        kept: rows are kept for the next run, with their digests.
    """

    nodes: int
    edges: int
    grids: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    self_loops: str | None = None
    pyg: bool = False
    types: bool = False
    compared: bool = False
    kept: bool = False

    def make(self, folder: Path, times: float) -> Path:
        """Write the job; its manifest's path."""
        job = write_types(folder, times) if self.types else self._make_one_type(folder, times)
        manifest = yaml.safe_load(job.read_text())
        # The same inputs and model, on another grid, would only be confirmed.
        manifest["spec"]["refresh"] = {"mode": "full", "keep": self.kept}
        manifest["spec"]["output"]["compare"] = self.compared
        if self.self_loops:
            manifest["spec"]["input"]["edges"][0]["selfLoops"] = self.self_loops
        job.write_text(yaml.safe_dump(manifest))
        if self.compared:
            embertide.run(job, grid="1x1")
        return job

    def _make_one_type(self, folder: Path, times: float) -> Path:
        nodes, edges = int(self.nodes * times), int(self.edges * times)
        options = SynthOptions(nodes=nodes, edges=edges, **self.options)
        storage = open_storage(StorageSettings())
        synthesize(storage, folder.as_uri(), options)
        if self.pyg:
            as_pyg(folder / "model")
        return folder / "job.yaml"


def as_pyg(model: Path) -> None:
    """Turn a random GCN of DGL's into PyG's, which has one self-loop per node."""
    path = model / "weights.safetensors"
    renamed = {}
    for name, tensor in safetensors.numpy.load_file(path).items():
        _, number, kind = name.split(".")
        matrix = kind == "weight"
        key = f"convs.{number}.lin.weight" if matrix else f"convs.{number}.bias"
        renamed[key] = np.ascontiguousarray(tensor.T) if matrix else tensor
    safetensors.numpy.save_file(renamed, path)
    text = (model / "model.yaml").read_text()
    (model / "model.yaml").write_text(text.replace("library: dgl", "library: pyg"))


WIDE = {"width": 8, "hidden": 8, "out": 8, "layers": 2, "kind": "uniform"}
NARROW = {"width": 32, "hidden": 32, "out": 32}
WIDE_TYPES = {"hetero": True, "conv": "sage", "width": 8, "hidden": 8, "out": 8, "layers": 2}
SHAPES = {
    "wide": Shape(4 << 20, 8 << 20, ("1x1", "2x1", "2x2"), WIDE),
    "wide-int64": Shape(4 << 20, 8 << 20, ("1x1", "2x1"), {**WIDE, "ids": "int64"}),
    "wide-strings": Shape(2 << 20, 4 << 20, ("1x1", "2x1"), {**WIDE, "ids": "string"}),
    # Read by one worker, whatever the grid.
    "one-split": Shape(60_000, 450_000, ("2x1", "2x2"), {"ids": "string", **NARROW}),
    "edge-features": Shape(
        1 << 18,
        8 << 20,
        ("1x1", "2x1", "2x2"),
        {"width": 16, "hidden": 16, "out": 16, "layers": 2, "conv": "edge_gat", "edge_features": 8},
    ),
    "edges": Shape(1 << 18, 32 << 20, ("1x1", "2x1", "2x2"), NARROW),
    "weights": Shape(1 << 18, 16 << 20, ("1x1", "2x1", "1x2"), {**NARROW, "weights": True}),
    "deep": Shape(1 << 19, 5 << 20, ("1x1", "2x1", "1x4"), {"layers": 6}),
    "growing": Shape(1 << 19, 5 << 20, ("2x1", "1x2"), {"width": 64}),
    "hubs": Shape(1 << 19, 10 << 20, ("1x1", "2x1", "1x4"), {"permute": False}),
    "gat": Shape(1 << 19, 10 << 20, ("1x1", "2x1", "1x4"), {"conv": "gat", "heads": 4}),
    "gatv2": Shape(1 << 18, 5 << 20, ("1x1", "2x1", "2x2"), {"conv": "gatv2", "heads": 4}),
    "dotgat": Shape(1 << 18, 5 << 20, ("1x1", "2x1", "1x2"), {"conv": "dotgat", "heads": 4}),
    "types": Shape(sum(COUNTS.values()), sum(EDGES.values()), ("1x1", "2x1", "1x2"), types=True),
    # Four edge types, read one after another, whose ids are looked up in rounds.
    "types-int64": Shape(300_000, 15_000_000, ("2x1", "2x2"), {**WIDE_TYPES, "ids": "int64"}),
    "more-loops": Shape(
        1 << 19, 4 << 20, ("1x1", "2x1"), {**NARROW, "weights": True}, self_loops="addToAll"
    ),
    "compared": Shape(1 << 20, 2 << 20, ("1x1", "2x1"), {"layers": 1}, compared=True),
    "kept": Shape(4 << 20, 8 << 20, ("1x1", "2x1", "1x2"), WIDE, kept=True),
    "single-loops": Shape(1 << 19, 10 << 20, ("1x1", "2x1"), {}, pyg=True),
}


def measure(job: Path, grid: str, least: float) -> dict[str, Any]:
    """Plan and run a job on a grid: peaks of the fullest worker by stage, planned and taken.

    Args:
        least: the share of the plan that a run is to take, or else it is run again.
    """
    taken, stages = 0, dict[str, int]()
    for _ in range(RUNS):
        report = embertide.run(job, grid=grid)
        planned = max(report.planned_memory.values())
        taken = max(taken, *(memory.used_bytes for memory in report.memory))
        for name in report.planned_memory:
            of_stage = (memory.stage_bytes.get(name, 0) for memory in report.memory)
            stages[name] = max(stages.get(name, 0), *of_stage)
        if taken >= least * planned:
            break
    return {
        "planned": planned,
        "taken": taken,
        "planned_stages": report.planned_memory,
        "taken_stages": stages,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = ", ".join(SHAPES)
    parser.add_argument("shapes", nargs="*", help=f"SHAPE[@GRID,...], of {names}; default: all")
    parser.add_argument("--times", type=float, default=1.0, help="multiplies nodes and edges")
    parser.add_argument("--within", type=float, default=0.2, help="a share of the plan")
    parser.add_argument("--stage", help="one that may take no more than its own plan, either")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    asked = parser.parse_args()
    results, wrong, stage = {}, [], asked.stage
    for words in asked.shapes or SHAPES:
        name, _, grids = words.partition("@")
        shape = SHAPES[name]
        with tempfile.TemporaryDirectory(prefix="embertide-memory-") as folder:
            job = shape.make(Path(folder) / name, asked.times)
            for grid in grids.split(",") if grids else shape.grids:
                found = results[f"{name} {grid}"] = measure(job, grid, 1 - asked.within)
                ratio = found["taken"] / found["planned"]
                over = found["taken_stages"][stage] / found["planned_stages"][stage] if stage else 0
                if abs(ratio - 1) > asked.within or over > 1 + asked.within:
                    wrong.append(f"{name} {grid}")
                show(name, grid, found, ratio)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))
    for case in wrong:
        print(f"more than {asked.within:.0%} from its plan: {case}", file=sys.stderr)
    return 1 if wrong else 0


def show(name: str, grid: str, found: dict[str, Any], ratio: float) -> None:
    """One line: peak and plan, then every stage's."""
    stages = "  ".join(
        f"{stage} {found['taken_stages'][stage] // MIB}/{planned // MIB}"
        for stage, planned in found["planned_stages"].items()
    )
    taken, planned = found["taken"] // MIB, found["planned"] // MIB
    print(f"{name:13} {grid}  {taken:6} of {planned:6} MiB  {ratio:5.2f}   {stages}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
