"""``embertide show``: a model layer by layer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from embertide.cli.drawing import escaped, new_table
from embertide.cli.options import (
    EndpointOption,
    GridOption,
    JsonOption,
    endpoint_settings,
    grid_of,
    location,
)

if TYPE_CHECKING:
    from rich.console import Console

    from embertide.models.summary import ModelSummary, StepSummary
    from embertide.program.plans.summary import PlanSummary
    from embertide.program.steps.program import Program
    from embertide.spec.grid import GridShape


def show(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="The model's folder or file; a path or URI.", show_default=False
        ),
    ],
    steps: Annotated[bool, typer.Option("--steps", help="Every step of every layer, too.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="How workers run it: operations in order, in phases.")
    ] = False,
    grid: GridOption = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="With --plan: all workers are on one host, as in `run`."),
    ] = False,
    endpoint_url: EndpointOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show a model layer by layer, with columns and parameters.

    Reads what a run would read: a folder that `embertide export` wrote, or model.yaml with its
    weights. Reports the same errors as a run.

    [bold]Examples[/bold]

      embertide show model
      embertide show model --steps
      embertide show model --plan --grid 2x2
      embertide show s3://shop/model --json
    """
    uri = location("MODEL", model)

    from embertide.io.storage.opening import open_storage
    from embertide.models.read import read_files
    from embertide.models.summary import summarise

    files = read_files(open_storage(endpoint_settings(endpoint_url)), uri)
    program = files.program()
    summary = summarise(program, files.library, files.layer_names)
    plan_shown = planned(program, grid_of(grid), in_place) if plan else None
    if json_output:
        from embertide.cli.progress_view import write_json

        more = {} if plan_shown is None else {"plan": plan_shown.to_json()}
        write_json(sys.stdout, {"event": "model", "uri": uri, **summary.to_json(), **more})
        return
    from rich.console import Console

    console = Console()
    draw(console, summary, steps)
    if plan_shown is not None:
        _draw_plan(console, plan_shown)


def planned(program: Program, grid: GridShape | None, in_place: bool) -> PlanSummary:
    """How the workers of a grid run a program; one worker where none is named."""
    from embertide.program.plans.passes import make_plan
    from embertide.program.plans.plan import Target
    from embertide.program.plans.summary import summarise_plan
    from embertide.spec.grid import GridShape

    return summarise_plan(make_plan(program, Target(grid=grid or GridShape(), in_place=in_place)))


def _draw_plan(console: Console, plan: PlanSummary) -> None:
    """A table of the operations, and what is kept after each phase."""
    grid = plan.grid if plan.grid == plan.layers_grid else f"{plan.grid}, layers {plan.layers_grid}"
    words = ["phase", "tensor", "layout", "operation", "reads", "needs", "frees"]
    table = new_table(f"Plan on the grid {grid}", words, ["columns"])
    for op in plan.ops:
        over = f" over {op.relation}" if op.relation else ""
        onto = f", onto {op.onto}" if op.onto else ""
        shared = f", rows shared by {', '.join(op.brings)}" if op.brings else ""
        reads = (f"{name} ({layout})" for name, layout in op.layouts.items())
        cells = [
            op.out,
            op.layout,
            f"{' + '.join(op.steps)}{over}{onto}{shared}",
            ", ".join(reads),
            op.reach,
            ", ".join(op.frees),
        ]
        table.add_row(str(op.phase), *map(escaped, cells), str(op.columns))
    console.print(table)
    kept = new_table("Kept tensors", ["after phase", "tensors"], [])
    for phase, names in enumerate(plan.kept):
        kept.add_row(str(phase), escaped(", ".join(names)))
    console.print(kept)


def draw(
    console: Console, model: ModelSummary, steps: bool, places: Mapping[str, str] | None = None
) -> None:
    """The table of layers, and with ``steps`` one of every step.

    Args:
        places: name of a step's tensor -> the line of the user's code that it comes from.
    """
    columns = model.inputs
    table = new_table("Layers", ["layer", "convolution"], ["columns", "parameters", "steps"])
    for number, layer in enumerate(model.layers):
        table.add_row(
            str(number),
            escaped(layer.name),
            _change(columns, layer.results),
            f"{layer.parameters:,}",
            str(len(layer.steps)),
        )
        columns = columns | layer.results
    table.add_row("total", "", _change(model.inputs, model.results), f"{model.parameters:,}", "")
    console.print(table)
    if steps:
        _draw_steps(console, model, places)


def _change(before: dict[str, int], after: dict[str, int]) -> str:
    """Columns before and after, for each node type that has columns after it."""
    return "\n".join(
        " ".join(filter(None, (escaped(name), f"{_columns_of(before, name)} → {columns}")))
        for name, columns in after.items()
    )


def _columns_of(before: dict[str, int], name: str) -> int:
    """The columns of a node type, which the label of a result may name."""
    names = (name, name.partition("/")[0], "")
    return next((before[known] for known in names if known in before), 0)


def _draw_steps(console: Console, model: ModelSummary, places: Mapping[str, str] | None) -> None:
    """With the node type or the relation, where there are several."""
    typed = "" not in model.inputs
    of = ["of"] if typed else []
    line = [] if places is None else ["line"]
    words = ["tensor", *of, "step", "reads", "parameters", *line]
    table = new_table("Steps", words, ["columns"])
    for layer in model.layers:
        for step in layer.steps:
            first, *cells = _step_cells(step)
            label = [escaped(step.relation or step.node_type)] if typed else []
            where = [] if places is None else [escaped(places.get(step.out, ""))]
            table.add_row(first, *label, *cells, *where, str(step.columns))
    console.print(table)


def _step_cells(step: StepSummary) -> list[str]:
    parameters = ", ".join(f"{name} {shape}" for name, shape in step.parameters.items())
    cells = [step.out, step.kind, ", ".join(step.reads), parameters]
    return [escaped(cell) for cell in cells]
