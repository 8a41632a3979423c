"""Oracles: what the product makes of many inputs, frozen as text that a review can read.

``python -m tools.oracles`` writes the files below ``tests/oracles``, which
``tests/unit/test_oracles.py`` compares. A text that differs is a change of behaviour: a rebuild has
none, and a change on purpose is committed with the new text beside the code.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from embertide.engine.planning.budget import within_budget
from embertide.engine.planning.graph import PlannedGraph, of_layers, plan_graph
from embertide.engine.planning.inputs import Inputs, list_inputs
from embertide.engine.planning.layer_memory import layers_bytes
from embertide.engine.planning.memory import stored_elsewhere
from embertide.engine.planning.sizing import IMPORTS_BYTES
from embertide.engine.planning.traffic import planned_traffic
from embertide.facts.telemetry.estimate import Estimate, PlannedSpill
from embertide.io.storage.opening import open_storage
from embertide.models.folder_writing import step_entry
from embertide.program.plans.boundaries import boundaries, boundary_digest, results_of
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Target
from embertide.program.plans.summary import OpSummary, summarise_plan
from embertide.program.steps import Program
from embertide.spec.crd import crd, schedule_crd
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.catalogue import catalogue
from tests.support.cli import ESTIMATE
from tests.support.hetero_programs import named
from tests.support.paths import ROOT
from tests.support.small_job import SmallJob
from tests.support.typed_programs import (
    attending,
    carrying,
    carrying_on,
    looped,
    normed,
    relational,
    scaled,
    sharing,
)

Sections = dict[str, Callable[[], str]]
"""A file's parts by their titles."""

FOLDER = ROOT / "tests" / "oracles"
GRIDS = ("1x1", "2x1", "1x2", "2x2", "3x2", "1x4")
NODES, EDGES = 1 << 27, 1 << 26
"""Of the graph that costs are of."""
LESS = 0.9
"""The share of the memory of all layers that a tight budget has."""
NARROW = 4
"""Columns in memory at a time that are shown where no number of them fits."""


def programs() -> Sections:
    """The steps of every model, as ``program.yaml`` has them."""
    return {name: partial(_steps, program) for name, program in _programs()}


@functools.cache
def _programs() -> list[tuple[str, Program]]:
    """Names and programs, of one node type and of several."""
    typed = (attending, carrying, carrying_on, looped, normed, relational, scaled, sharing)
    return [
        *((name, case.program) for name, case in catalogue().items()),
        *((f"types {name}", program) for name, program in named()),
        *((f"types made {make.__name__}", make()) for make in typed),
    ]


def _steps(program: Program) -> str:
    entries = (step_entry(step, program) for step in program.steps)
    return "".join(
        yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=10**6)
        for entry in entries
    )


def plans() -> Sections:
    """Each model's operations on six grids, several hosts, and on one host where that differs."""
    return {name: partial(_grids, program) for name, program in _programs()}


def _grids(program: Program) -> str:
    """Grids with the same operations share them."""
    shared: dict[str, list[str]] = {}
    for grid, in_place in itertools.product(GRIDS, (False, True)):
        plan = make_plan(program, Target(grid=GridShape.parse(grid), in_place=in_place))
        shown = summarise_plan(plan)
        label = grid + (" in place" if in_place else "")
        if shown.layers_grid != shown.grid:
            label += f" as {shown.layers_grid}"
        shared.setdefault("".join(f"{_op(op)}\n" for op in shown.ops), []).append(label)
    return "".join(f"-- {', '.join(on)}\n{text}" for text, on in shared.items())


def _op(op: OpSummary) -> str:
    """``phase out:layout[columns] = kinds(reads) options``."""
    reads = ", ".join(f"{name}:{layout}" for name, layout in op.layouts.items())
    more = {
        "over": op.relation,
        "onto": op.onto,
        "brings": " ".join(op.brings),
        "reuses": op.reuses,
        "frees": " ".join(op.frees),
    }
    options = "".join(f" {word} {value}" for word, value in more.items() if value)
    return f"{op.phase} {op.out}:{op.layout}[{op.columns}] = {'+'.join(op.steps)}({reads}){options}"


def checkpoints() -> Sections:
    """The identity of the end of each layer, of models that have a step of each kind.

    Their weights are zeros here: those of the catalogue may be drawn in another way elsewhere.
    """
    sections, seen = Sections(), set[str]()
    for name, program in _programs():
        kinds = {step.kind_name for step in program.steps}
        if program.layers > 1 and "dgl" not in name.split() and not kinds <= seen:
            sections[name] = partial(_checkpoints, program)
            seen |= kinds
    return sections


def _checkpoints(program: Program) -> str:
    zeros = {name: torch.zeros(value.shape) for name, value in program.params.items()}
    plan = make_plan(replace(program, params=zeros), Target(grid=GridShape.parse("2x2")))
    ends = (*boundaries(plan), results_of(plan))
    return "".join(f"{end.layer} {boundary_digest(plan, end, 'float32')}\n" for end in ends)


def costs() -> Sections:
    """What each model's layers take on six grids: all in memory, and where less has to do."""
    with tempfile.TemporaryDirectory() as folder:
        job = load_manifest(Path(SmallJob.make(Path(folder)).manifest))
        inputs = list_inputs(open_storage(None), job)
    return {
        name: partial(_costs, _Layers(case.program, job, inputs))
        for name, case in catalogue().items()
    }


def _costs(layers: _Layers) -> str:
    return "".join(
        f"{line}\n"
        for grid in map(GridShape.parse, GRIDS)
        for line in (f"-- {grid}", *layers.in_memory(grid), *layers.in_less(grid))
    )


@dataclass(frozen=True)
class _Layers:
    """A model's layers on a graph of `NODES` and `EDGES`."""

    program: Program
    job: EmbeddingJob
    inputs: Inputs

    def in_memory(self, grid: GridShape) -> Iterator[str]:
        """Bytes in memory; bytes and messages by axis, primitive and layer."""
        yield f"memory: {self.estimate(grid).peak_memory_per_worker_bytes}"
        plan = make_plan(self.program, Target(grid=grid))
        for item in planned_traffic(self._graph(grid), plan, None):
            sent = f"{item.bytes_per_worker} in {item.messages}"
            yield f"{item.axis} {item.primitive} {item.layer}: {sent}"

    def in_less(self, grid: GridShape) -> Iterator[str]:
        """What is chosen where `LESS` of that memory is there, and what it takes and moves."""
        planned = self.estimate(grid)
        limit = IMPORTS_BYTES + int(LESS * planned.peak_memory_per_worker_bytes)
        widest = max(self.program.widths.values())
        # One node: larger grids are not tried.
        chosen = within_budget(planned, limit, 1, widest, self.estimate, "")
        fits = chosen.spill is not None
        spill = chosen.spill or PlannedSpill(NARROW, 0, 0, 0, 0.0)
        taken = chosen if fits else self.estimate(grid, panel=NARROW)
        target = Target(grid=grid, panel=spill.panel, spills_graph=spill.graph)
        moved = stored_elsewhere(self._graph(grid), make_plan(self.program, target), None)
        how = ", the graph on disk" if spill.graph else "" if fits else ", which does not fit"
        yield f"in less memory: {spill.panel} columns{how}"
        yield f"- memory: {taken.peak_memory_per_worker_bytes}, most in {moved.largest}"
        yield f"- files: {moved.disk_bytes}"
        yield f"- read: {moved.read_bytes}"
        yield f"- written: {moved.written_bytes}"

    def estimate(self, grid: GridShape, *, panel: int = 0, spills_graph: bool = False) -> Estimate:
        """Of the layers' memory alone."""
        target = Target(grid=grid, panel=panel, spills_graph=spills_graph)
        plan = make_plan(self.program, target)
        graph = of_layers(self._graph(grid), plan)
        peak = int(layers_bytes(graph, plan, None, placed=()).on_cpu)
        spill = PlannedSpill(panel, 0, 0, 0, 0.0, spills_graph) if panel else None
        return replace(
            ESTIMATE,
            grid=grid,
            memory_per_worker_bytes={"infer": peak},
            peak_memory_per_worker_bytes=peak,
            spill=spill,
        )

    def _graph(self, grid: GridShape) -> PlannedGraph:
        graph = plan_graph(self.job, self.inputs, self.program, grid)
        nodes = dict.fromkeys(graph.size.nodes, NODES)
        size = replace(graph.size, nodes=nodes, edges=dict.fromkeys(graph.size.edges, EDGES))
        return replace(graph, size=size)


def fields() -> Sections:
    """Each field of the definitions and of the chart's values: type, bounds, default, rules."""
    values = json.loads((ROOT / "charts" / "embertide" / "values.schema.json").read_text())
    (job,), (schedule,) = (made["spec"]["versions"] for made in (crd(), schedule_crd()))
    return {
        "EmbeddingJob": partial(_fields, job["schema"]["openAPIV3Schema"]),
        "EmbeddingSchedule": partial(_fields, schedule["schema"]["openAPIV3Schema"]),
        "values of the chart": partial(_fields, values),
    }


def _fields(schema: dict[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _field(schema, ""))


def _field(schema: dict[str, Any], path: str) -> Iterator[str]:
    """A line for what is known of a field, one for each rule, then the fields below it."""
    inner = {"properties": ".{}", "definitions": "#{}", "items": "[]"}
    about = {key: value for key, value in schema.items() if key not in {*inner, "description"}}
    rules = about.pop("x-kubernetes-validations", [])
    for shown in (about, *rules):
        yield f"{path or '.'} {json.dumps(shown, sort_keys=True, ensure_ascii=False)}"
    for kind, step in inner.items():
        found = schema.get(kind, {})
        for name, field in {"": found}.items() if kind == "items" else found.items():
            if field:
                yield from _field(field, path + step.format(name))


def helps() -> Sections:
    """``--help`` of every command."""
    from typer.main import get_command

    from embertide.cli.app import app

    names = sorted(getattr(get_command(app), "commands", {}))
    return {name: partial(_help, name) for name in names}


def _help(name: str) -> str:
    from embertide.cli import main

    shown = io.StringIO()
    os.environ |= {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())


def runs() -> Sections:
    """Manifest, report and status of runs of small jobs."""
    from tools.frozen_runs import sections

    return sections()


ORACLES: dict[str, tuple[Callable[[], Sections], int]] = {
    "programs.txt": (programs, 1),
    "plans.txt": (plans, 4),
    "checkpoints.txt": (checkpoints, 1),
    "costs.txt": (costs, 16),
    "fields.txt": (fields, 1),
    "help.txt": (helps, 1),
    "runs.txt": (runs, 0),
}
"""File -> its sections, and of how many one is compared in the first tier; 0: named in a test."""


def frozen(name: str) -> dict[str, str]:
    """The sections of a file as they were frozen."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def main() -> None:
    """Write the files, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="FILE", help=", ".join(ORACLES))
    for name in parser.parse_args().names or ORACLES:
        FOLDER.mkdir(parents=True, exist_ok=True)
        text = "".join(f"== {of}\n{make()}" for of, make in ORACLES[name][0]().items())
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
