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
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from embertide.models.folder_writing import step_entry
from embertide.planning.graph import PlannedGraph, of_layers, plan_graph
from embertide.planning.inputs import list_inputs
from embertide.planning.layer_memory import layers_bytes
from embertide.planning.spilled import spilled_costs
from embertide.planning.traffic import planned_traffic
from embertide.plans.passes import make_plan
from embertide.plans.plan import Plan, Target
from embertide.plans.summary import OpSummary, summarise_plan
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from embertide.steps import Program
from embertide.storage.opening import open_storage
from tests.support.catalogue import Case, catalogue
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

FOLDER = ROOT / "tests" / "oracles"
GRIDS = ("1x1", "2x1", "1x2", "2x2", "3x2", "1x4")
NODES, EDGES = 1 << 20, 1 << 24
"""Of the graph that costs are of."""
PANEL = 4
"""Columns of a tensor on disk that are in memory at a time."""


def programs() -> str:
    """The steps of every model, as ``program.yaml`` has them."""
    return "".join(f"== {name}\n{_steps(program)}" for name, program in _programs())


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


def plans() -> str:
    """Each model's operations on six grids, several hosts, and on one host where that differs."""
    return "".join(_grids(name, program) for name, program in _programs())


def _grids(name: str, program: Program) -> str:
    """Grids with the same operations share them."""
    shared: dict[str, list[str]] = {}
    for grid, in_place in itertools.product(GRIDS, (False, True)):
        plan = make_plan(program, Target(grid=GridShape.parse(grid), in_place=in_place))
        shown = summarise_plan(plan)
        label = grid + (" in place" if in_place else "")
        if shown.layers_grid != shown.grid:
            label += f" as {shown.layers_grid}"
        shared.setdefault("".join(f"{_op(op)}\n" for op in shown.ops), []).append(label)
    return f"== {name}\n" + "".join(f"-- {', '.join(on)}\n{text}" for text, on in shared.items())


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


def costs() -> str:
    """Memory and traffic of each model's layers on six grids, in memory and in panels on disk."""
    with tempfile.TemporaryDirectory() as folder:
        job = load_manifest(Path(SmallJob.make(Path(folder)).manifest))
        inputs = list_inputs(open_storage(None), job)
        graph_of = functools.partial(plan_graph, job, inputs)
        return "".join(f"== {name}\n{_costs(case, graph_of)}" for name, case in catalogue().items())


def _costs(case: Case, graph_of: Callable[[Program, GridShape], PlannedGraph]) -> str:
    lines = []
    for name in GRIDS:
        graph = _large(graph_of(case.program, GridShape.parse(name)))
        plan = make_plan(case.program, Target(grid=graph.size.grid))
        lines.append(f"{name}: {_memory(graph, plan)}{_traffic(graph, plan)}\n")
        on_disk = make_plan(case.program, Target(grid=graph.size.grid, panel=PANEL))
        size = replace(graph.size, grid=on_disk.grid)
        moved = spilled_costs(on_disk, size, placed=())
        lines.append(
            f"{name} on disk: {_memory(graph, on_disk)} {moved.disk:.0f}B of files,"
            f" {moved.read:.0f}B read, {moved.written:.0f}B written\n"
        )
    return "".join(lines)


def _large(graph: PlannedGraph) -> PlannedGraph:
    size = replace(
        graph.size,
        nodes=dict.fromkeys(graph.size.nodes, NODES),
        edges=dict.fromkeys(graph.size.edges, EDGES),
    )
    return replace(graph, size=size)


def _memory(graph: PlannedGraph, plan: Plan) -> str:
    bytes_of = layers_bytes(of_layers(graph, plan), plan, None, placed=())
    return f"{bytes_of.on_cpu:.0f}B in memory"


def _traffic(graph: PlannedGraph, plan: Plan) -> str:
    """Bytes and messages by axis, primitive and layer."""
    return "".join(
        f", {item.axis} {item.primitive} {item.layer} {item.bytes_per_worker}B/{item.messages}"
        for item in planned_traffic(graph, plan, None)
    )


def helps() -> str:
    """``--help`` of every command."""
    from typer.main import get_command

    from embertide.cli.app import app

    command = get_command(app)
    names = sorted(getattr(command, "commands", {}))
    return "".join(f"== {name}\n{_help(name)}" for name in names)


def _help(name: str) -> str:
    from embertide.cli import main

    shown = io.StringIO()
    os.environ |= {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([name, "--help"])
    return "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())


ORACLES: dict[str, Callable[[], str]] = {
    "programs.txt": programs,
    "plans.txt": plans,
    "costs.txt": costs,
    "help.txt": helps,
}


def differing() -> Iterator[str]:
    """Names of the files that are not what is made now."""
    for name, make in ORACLES.items():
        path = FOLDER / name
        if not path.is_file() or path.read_text(encoding="utf-8") != make():
            yield name


def main() -> None:
    """Write the files, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="FILE", help=", ".join(ORACLES))
    for name in parser.parse_args().names or ORACLES:
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(ORACLES[name](), encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
