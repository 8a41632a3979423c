"""Where a program and its module differ, for the message of a proof that fails."""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.errors import EmbertideError
from embertide.models.reference import reference_steps
from embertide.program.steps import Program
from embertide.tracing.lower.lowering import Lowered
from embertide.tracing.prove.agreement import TOLERANCE, error_of, layer_graphs
from embertide.tracing.record.graphs import RandomGraph
from embertide.tracing.record.trials import Trial

Lower = Callable[[RandomGraph], Lowered]
"""Records the module on a graph and writes it as a program."""


def difference(
    error: float, result: str, program: Program, trial: Trial, weighted: bool, lower: Lower
) -> str:
    """The message: which tensor is the first to differ, and what in the module makes it.

    Args:
        result: label of the one that differs.
    """
    graph = trial.graph
    of_type = f" for {result}" if result else ""
    text = (
        f"the program does not give what the module gives{of_type} on {trial.name}"
        f" ({sum(graph.counts.values())} nodes, {graph.edge_count} edges,"
        f" {'with' if weighted else 'without'} edge weights): the largest error is {error:.3g}, and"
        f" up to {TOLERANCE:g} is agreement. Nothing was written."
    )
    if not weighted:
        # With weights they agree, which is compared before.
        return f"{text}\n{_WITHOUT_WEIGHTS}"
    try:
        return f"{text}\n{_cause(program, graph, lower(graph))}"
    except EmbertideError as problem:
        return f"{text}\nOn this graph the module cannot be recorded: {problem}"


_WITHOUT_WEIGHTS = (
    "With edge weights they agree: the module does something else where it is given none than with"
    " weights of 1. Decide for one: leave the argument out of forward, or give it no default."
)


def _cause(program: Program, graph: RandomGraph, lowered: Lowered) -> str:
    return (
        _other_way(program, lowered)
        or _not_finite(program, graph, lowered)
        or _first_step(program, graph, lowered)
        or _constant(program, lowered)
        or _AGAIN
    )


_AGAIN = (
    "Every step agrees with what was recorded, so the module gives something else when it is called"
    " again: it keeps something from call to call, changes a tensor in place that another name"
    " still has, or draws random numbers in eval mode."
)


def _other_way(program: Program, lowered: Lowered) -> str:
    """The first step that a module does otherwise on this graph; empty where all are the same."""
    steps, others = program.steps, lowered.program.steps
    if steps == others:
        return ""
    pairs = zip(steps, others, strict=False)
    first = next((other for step, other in pairs if step != other), (*others, *steps)[-1])
    node = lowered.origins.get(first.out)
    where = f" at {node.where} ({node.op})" if node else ""
    return (
        "On this graph the module does something else than on the one that it was recorded on; the"
        f" first other step is {first.out} ({first.kind_name}){where}. It decides by the number of"
        " nodes or edges, or by what they are; a program does the same for every graph: leave the"
        " branch out, or decide by an argument of the module."
    )


def _not_finite(program: Program, graph: RandomGraph, lowered: Lowered) -> str:
    """Where a module divides by zero or takes its root, as at nodes without in-edges."""
    graphs = layer_graphs(program, graph, weighted=True)
    for step, _ in reference_steps(program, graphs, graph.x, graph.counts):
        node = lowered.origins.get(step.out)
        if node is None or not isinstance(node.value, torch.Tensor):
            continue
        finite = node.value.reshape(len(node.value), -1).isfinite().all(dim=1)
        if not finite.all():
            return (
                f"The module itself gives NaN or Inf, first at {node.where} ({node.op}), in"
                f" {int((~finite).sum())} of {len(finite)} rows. The graph has nodes without"
                " in-edges: a degree of 0 must not be divided by; write degrees.clamp(min=1)."
            )
    return ""


def _first_step(program: Program, graph: RandomGraph, lowered: Lowered) -> str:
    graphs = layer_graphs(program, graph, weighted=True)
    for step, actual in reference_steps(program, graphs, graph.x, graph.counts):
        node = lowered.origins.get(step.out)
        if node is None:
            continue
        off = error_of(actual, node.value)
        if not off <= TOLERANCE:
            over = f" over {step.edges.relation}" if step.edges and step.edges.relation else ""
            return (
                f"The first step that differs is {step.out} ({step.kind_name}{over}), by"
                f" {off:.3g}; the module makes it at {node.where} ({node.op})."
            )
    return ""


def _constant(program: Program, lowered: Lowered) -> str:
    for name, param in program.params.items():
        other = lowered.program.params.get(name)
        if other is None or not torch.equal(param, other):
            return (
                f"The program's constant {name} has other numbers on a graph of another"
                " size: the module computes with the number of nodes or edges (len(x), x.shape[0])."
                " Leave that out, or use mean(dim=0), in-degrees, or PyG's GraphSizeNorm."
            )
    return ""
