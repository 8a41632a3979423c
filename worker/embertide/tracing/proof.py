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
from embertide.models.reference import reference_steps, run_typed_reference
from embertide.steps import Program
from embertide.tracing.graphs import GraphTypes, RandomGraph, random_graph
from embertide.tracing.lower import Lowered
from embertide.tracing.run import Subject

TOLERANCE = 1e-9
"""Largest error that is agreement, as a share of the largest value."""
NODES, SEED = 41, 2


@dataclass(frozen=True)
class Proof:
    """What was compared.

    Attributes:
        errors: node type -> the largest error, as a share of the largest value of the module's
            result for the type.
        nodes, edges: of all types.
        weighted: whether the graph had edge weights, for each comparison.
    """

    errors: dict[str, float]
    nodes: int
    edges: int
    weighted: tuple[bool, ...]
    tolerance: float = TOLERANCE

    @property
    def largest_error(self) -> float:
        """Of all node types."""
        return max(self.errors.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the tolerance; errors by type where types have names."""
        by_type = {} if "" in self.errors else {"errors": self.errors}
        return {
            "largest_error": self.largest_error,
            **by_type,
            "tolerance": self.tolerance,
            "nodes": self.nodes,
            "edges": self.edges,
            "edge_weights": list(self.weighted),
        }


def prove(subject: Subject, program: Program, types: GraphTypes, lower: Any) -> Proof:
    """Compare, with edge weights and, where the module does without, without.

    Args:
        types: of the graph.
        lower: records the module on a graph and lowers it again, to find where a difference is.

    Raises:
        ModelError: they differ; names the first step that does.
    """
    graph = random_graph(types, NODES, SEED)
    variants = (True, False) if subject.weights_are_optional else (True,)
    errors = dict.fromkeys(program.results, 0.0)
    for weighted in variants:
        expected = by_node_type(subject.forward(graph, weighted), program)
        found = run_typed_reference(
            program, layer_graphs(program, graph, weighted), graph.x, graph.counts
        )
        for node_type, rows in found.items():
            error = error_of(rows, expected.get(node_type))
            if not error <= TOLERANCE:
                told = _difference(error, node_type, program, graph, weighted, lower(graph))
                raise ModelError(told)
            errors[node_type] = max(errors[node_type], error)
    return Proof(errors, sum(graph.counts.values()), graph.edge_count, variants)


def by_node_type(out: Any, program: Program) -> dict[str, Any]:
    """What a module gave, for each node type that the program gives something for."""
    if isinstance(out, dict):
        return out
    return dict.fromkeys(program.results, out)


def layer_graphs(program: Program, graph: RandomGraph, weighted: bool) -> list[Any]:
    """The same graph for every layer: by relation."""
    edges = {
        relation: (one.src, one.dst, one.weight if weighted else None, one.features)
        for relation, one in graph.edges.items()
    }
    return [edges] * program.layers


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
    error: float,
    node_type: str,
    program: Program,
    graph: RandomGraph,
    weighted: bool,
    lowered: Lowered,
) -> str:
    """The message: which tensor is the first to differ, and what in the module makes it."""
    of_type = f" for {node_type}" if node_type else ""
    text = (
        f"the program does not give what the module gives{of_type} on a random graph of"
        f" {sum(graph.counts.values())} nodes {'with' if weighted else 'without'} edge weights: the"
        f" largest error is {error:.3g}, and up to {TOLERANCE:g} is agreement. Nothing was written."
    )
    graphs = layer_graphs(program, graph, weighted=True)
    for step, found in reference_steps(program, graphs, graph.x, graph.counts):
        node = lowered.made.get(step.out)
        if node is None:
            continue
        off = error_of(found, node.value)
        if not off <= TOLERANCE:
            over = f" over {step.edges.relation}" if step.edges and step.edges.relation else ""
            return (
                f"{text}\nThe first step that differs is {step.out} ({step.kind_name}{over}), by"
                f" {off:.3g}; the module makes it at {node.where} ({node.op})."
            )
    for name, param in program.params.items():
        other = lowered.program.params.get(name)
        if other is None or not torch.equal(param, other):
            return (
                f"{text}\nThe program's constant {name} has other numbers on a graph of another"
                " size: the module computes with the number of nodes or edges (len(x), x.shape[0])."
                " Leave that out, or use mean(dim=0), in-degrees, or PyG's GraphSizeNorm."
            )
    return (
        f"{text}\nEvery step agrees with what was recorded, so the module gives something else when"
        " it is called again: it keeps something from call to call, changes a tensor in place that"
        " another name still has, or draws random numbers in eval mode."
    )
