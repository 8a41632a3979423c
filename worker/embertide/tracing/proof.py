"""The proof: on a random graph, the module's own forward and the written program agree.

The program is the one that was written and read back, run by the float64 reference. The graph is
another one than the module was traced on, with another number of nodes, so that whatever was
taken from the traced graph shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.models.reference import reference_steps, run_reference
from embertide.steps import Program
from embertide.tracing.graphs import RandomGraph, random_graph
from embertide.tracing.lower import Lowered
from embertide.tracing.run import Subject

TOLERANCE = 1e-9
"""Largest error that is agreement, as a share of the largest value."""
NODES, SEED = 41, 2


@dataclass(frozen=True)
class Proof:
    """What was compared.

    Attributes:
        largest_error: as a share of the largest value of the module's result.
        weighted: whether the graph had edge weights, for each comparison.
    """

    largest_error: float
    nodes: int
    edges: int
    weighted: tuple[bool, ...]
    tolerance: float = TOLERANCE

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the tolerance."""
        return {
            "largest_error": self.largest_error,
            "tolerance": self.tolerance,
            "nodes": self.nodes,
            "edges": self.edges,
            "edge_weights": list(self.weighted),
        }


def prove(subject: Subject, program: Program, lower: Any) -> Proof:
    """Compare, with edge weights and, where the module does without, without.

    Args:
        lower: records the module on a graph and lowers it again, to find where a difference is.

    Raises:
        ModelError: they differ; names the first step that does.
    """
    graph = random_graph(NODES, program.input_width, SEED)
    variants = (True, False) if subject.weights_are_optional else (True,)
    errors = []
    for weighted in variants:
        expected = subject.forward(graph, weighted)
        found = run_reference(program, layer_graphs(program, graph, weighted), graph.x)
        errors.append(error_of(found, expected))
        if not errors[-1] <= TOLERANCE:
            raise ModelError(_difference(errors[-1], program, graph, weighted, lower(graph)))
    return Proof(max(errors), graph.nodes, len(graph.src), variants)


def layer_graphs(program: Program, graph: RandomGraph, weighted: bool) -> list[Any]:
    """The same graph for every layer."""
    return [(graph.src, graph.dst, graph.weight if weighted else None)] * program.layers


def error_of(found: Tensor, expected: Any) -> float:
    """The largest difference as a share of the largest expected value."""
    if not isinstance(expected, Tensor) or expected.shape[:1] != found.shape[:1]:
        return float("inf")
    expected = expected.double().reshape(len(expected), -1)
    if expected.shape != found.shape:
        return float("inf")
    largest = max(float(expected.abs().max()), torch.finfo(torch.float64).tiny)
    return float((found - expected).abs().max().nan_to_num(nan=torch.inf)) / largest


def _difference(
    error: float, program: Program, graph: RandomGraph, weighted: bool, lowered: Lowered
) -> str:
    """The message: which tensor is the first to differ, and what in the module makes it."""
    text = (
        f"the program does not give what the module gives on a random graph of {graph.nodes} nodes"
        f" {'with' if weighted else 'without'} edge weights: the largest error is {error:.3g}, and"
        f" up to {TOLERANCE:g} is agreement. Nothing was written."
    )
    graphs = layer_graphs(program, graph, weighted=True)
    for step, found in reference_steps(program, graphs, graph.x):
        node = lowered.made.get(step.out)
        if node is None:
            continue
        off = error_of(found, node.value)
        if not off <= TOLERANCE:
            return (
                f"{text}\nThe first step that differs is {step.out} ({step.kind_name}), by"
                f" {off:.3g}; the module makes it at {node.where} ({node.op})."
            )
    return (
        f"{text}\nEvery step agrees with what was recorded, so the module gives something else when"
        " it is called again: it keeps something from call to call, changes a tensor in place that"
        " another name still has, or draws random numbers in eval mode."
    )
