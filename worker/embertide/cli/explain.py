"""What ``embertide export`` shows: how a module was understood, and what was compared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embertide.cli.drawing import escaped, new_table, print_line
from embertide.cli.show import draw, planned
from embertide.errors import EmbertideError

if TYPE_CHECKING:
    from rich.console import Console

    from embertide.program.plans.summary import PlanSummary
    from embertide.tracing.explanation import Explanation, Understood
    from embertide.tracing.prove.proof import Proof

AS_INITIALISED = "No --weights: the parameters are as NAME initialises them."
_FROM = {"neighbours": "neighbours", "graph": "all nodes"}
"""Reach of an operation -> whose rows it reads."""


@contextmanager
def explaining(understood: Understood, *, initialised: bool, json_output: bool) -> Iterator[None]:
    """Show what was understood once the export ends; after a refusal what was until then.

    In JSON a refusal stays one object, with what was understood as ``explained``.
    """
    try:
        yield
    except EmbertideError as error:
        shown = _explanation(understood, initialised, json_output)
        if shown is not None:
            error.details = {"explained": shown}
        raise
    shown = _explanation(understood, initialised, json_output)
    if shown is not None:
        from embertide.cli.progress_view import write_json

        write_json(sys.stdout, {"event": "explain", **shown})


def _explanation(
    understood: Understood, initialised: bool, json_output: bool
) -> dict[str, Any] | None:
    """Plain values for JSON; else None, once it is drawn."""
    from embertide.tracing.explanation import explain

    explanation = explain(understood)
    if explanation is None:
        return None
    if json_output:
        return explained_json(explanation, initialised=initialised)
    from rich.console import Console

    draw_explanation(Console(), explanation, initialised=initialised)
    return None


def explained_json(explanation: Explanation, *, initialised: bool) -> dict[str, Any]:
    """Plain values, with the plan of one worker, as `embertide show --plan` has it."""
    program = explanation.program
    return {
        "weights": "initialised" if initialised else "loaded",
        **explanation.to_json(),
        **({"warnings": []} if initialised else {}),
        "plan": None if program is None else planned(program, None, False).to_json(),
    }


def draw_explanation(console: Console, explanation: Explanation, *, initialised: bool) -> None:
    """Arguments, graph, layers with their steps and lines, phases, and the proof's outcome."""
    _draw_arguments(console, explanation)
    _draw_graph(console, explanation)
    if explanation.summary is not None and explanation.program is not None:
        places = {name: _short(place) for name, place in explanation.places.items()}
        draw(console, explanation.summary, steps=True, places=places)
        results = (f"{name} {n} columns".strip() for name, n in explanation.summary.results.items())
        print_line(console, escaped(f"Results: {', '.join(results)}"))
        for line in explanation.scores:
            print_line(console, escaped(f"Scores of pairs: {line}"))
        _draw_phases(console, planned(explanation.program, None, False))
    if initialised:
        print_line(console, AS_INITIALISED)
    if explanation.proof is not None:
        for line in proved(explanation.module, explanation.proof):
            print_line(console, escaped(line))
        for warning in () if initialised else explanation.proof.warnings:
            print(f"warning: {warning}", file=sys.stderr)


def _draw_arguments(console: Console, explanation: Explanation) -> None:
    title = f"Arguments of {explanation.module}"
    table = new_table(title, ["argument", "taken for", "known by"], [])
    for argument in explanation.arguments:
        cells = (argument.name, argument.meaning, argument.known_by)
        table.add_row(*map(escaped, cells))
    console.print(table)


def _draw_graph(console: Console, explanation: Explanation) -> None:
    """Node types with features, categories and tables, and relations that have a name or such."""
    nodes = new_table("Nodes", ["type", "categories", "tables"], ["features"])
    for kind in explanation.nodes:
        tables = ", ".join(f"{name} ({columns} columns)" for name, columns in kind.tables.items())
        width = "not known" if kind.columns is None else str(kind.columns)
        nodes.add_row(*map(escaped, (kind.name or "-", _counts(kind.categories), tables)), width)
    console.print(nodes)
    if any(relation.name or relation.columns for relation in explanation.relations):
        edges = new_table("Edges", ["relation", "categories"], ["features"])
        for relation in explanation.relations:
            cells = (relation.name or "-", _counts(relation.categories))
            edges.add_row(*map(escaped, cells), str(relation.columns))
        console.print(edges)


def _counts(categories: Mapping[int, int]) -> str:
    return ", ".join(f"column {column}: {count}" for column, count in categories.items())


def _draw_phases(console: Console, plan: PlanSummary) -> None:
    """The operations that read rows of other nodes, each of which begins a phase."""
    ops = [op for op in plan.ops if op.reach in _FROM]
    if not ops:
        print_line(console, "No step reads rows of other nodes.")
        return
    table = new_table("Read from other nodes", ["phase", "reads", "of", "over", "operation"], [])
    for op in ops:
        cells = (", ".join(op.reads), _FROM[op.reach], op.relation, " + ".join(op.steps))
        table.add_row(str(op.phase), *map(escaped, cells))
    console.print(table)


def _short(place: str) -> str:
    """A place without the current directory, or without the folder of installed packages."""
    folders = (f"{Path.cwd()}{os.sep}", f"site-packages{os.sep}")
    return next((place.partition(one)[2] for one in folders if one in place), place)


def proved(module: str, proof: Proof) -> Iterator[str]:
    """What was compared, and what was not."""
    compared = len(proof.graphs) - len(proof.not_compared)
    yield (
        f"Agrees with {module} on {compared} random graphs: largest error {_errors(proof.errors)}"
        f" (up to {proof.tolerance:g} is agreement)"
    )
    for graph in proof.not_compared:
        yield f"Not compared on {graph.name}, where {graph.reason}"
    if proof.left_out:
        yield f"Not passed to forward, so that their defaults hold: {', '.join(proof.left_out)}"


def _errors(errors: dict[str, float]) -> str:
    """The error, or that of each result."""
    return ", ".join(
        f"{error:.3g} for {name}" if name else f"{error:.3g}" for name, error in errors.items()
    )
