"""Edge weights that a module computes, normalised as GCN does with self-loops of their own weight.

PyG's `gcn_norm` gives each node one self-loop: one that is there keeps its weight, the others get a
fill value. With weights that are computed no step has such edges, so a sum over them is taken
apart: the edges that are no self-loops, and what the self-loop of each node adds, a row of each
node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.edges import Edges
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import edges_of, is_of_several, is_weight
from embertide.tracing.record.traced import Node, Traced, map_nodes
from embertide.tracing.record.user_code import refuse

Function = Callable[..., Any]


def gcn_norm(recording: Recording, real: Function) -> Function:
    """`torch_geometric.nn.conv.gcn_conv.gcn_norm` of weights that are computed."""

    def replacing(
        edge_index: Any,
        edge_weight: Any = None,
        num_nodes: Any = None,
        improved: bool = False,
        add_self_loops: bool = True,
        flow: str = "source_to_target",
        dtype: Any = None,
    ) -> Any:
        edges = _own_edges(recording, edge_index) if add_self_loops else None
        if edges is None or not _is_computed(edge_weight):
            more = num_nodes, improved, add_self_loops, flow, dtype
            return real(edge_index, edge_weight, *more)
        return _normalised(recording, edges, edge_weight, 2.0 if improved else 1.0)

    return replacing


def _own_edges(recording: Recording, edge_index: Any) -> Edges | None:
    """The edges of a relation as the job has them; None for other ones."""
    name = edges_of(edge_index.node) if isinstance(edge_index, Traced) else None
    edges = recording.edges.get(str(name))
    own = edges is not None and edges.view.loops == "keep" and not is_of_several(edge_index.node)
    return edges if own else None


def _is_computed(weight: Any) -> bool:
    return (
        isinstance(weight, Traced)
        and weight.node.edges
        and not is_weight(weight.node)
        and weight.numel() == len(weight)
    )


def _normalised(
    recording: Recording, edges: Edges, weight: Any, fill: float
) -> tuple[Traced, Traced]:
    """The edges that are no self-loops, and their normalised weights; notes those of loops."""
    others, scope = (
        recording.seen(edges.view.after("remove_self_loops")),
        recording.scopes.current(),
    )
    of_others: Any = moved(recording, weight.flatten(), edges, others)
    total, others_total = (
        along.aggregate(of_edges.view(-1, 1), "sum", scope).flatten()
        for along, of_edges in ((edges, weight), (others, of_others))
    )
    loops: Any = edges.degree("in") - others.degree("in")
    loop = torch.where(loops > 0.5, (total - others_total) / loops.clamp(min=1.0), fill)
    root: Any = (others_total + loop).pow(-0.5)
    root = torch.where(root == float("inf"), 0.0, root)
    norm = others.source(root) * of_others * others.target(root)
    recording.loop_weights[norm.node] = root * root * loop
    return recording.edge_index[others.view.name], norm


def moved(recording: Recording, tensor: Traced, edges: Edges, to: Edges) -> Traced:
    """A tensor of all edges for those alone that are no self-loops: the same record once more."""
    stay = edges.own.src != edges.own.dst
    return recording.tape.wrap(_Moving(recording, to, stay).of(tensor.node))


class _Moving:
    """Operations on edges, once more on other ones of the same relation."""

    def __init__(self, recording: Recording, to: Edges, stay: Tensor) -> None:
        self.recording, self.to, self.stay = recording, to, stay
        self.moved: dict[Node, Node] = {}

    def of(self, node: Node) -> Node:
        """What an operation gives for the edges that stay; nodes' rows are the same."""
        if not node.edges:
            return node
        if node not in self.moved:
            self.moved[node] = self._moved(node)
        return self.moved[node]

    def _moved(self, node: Node) -> Node:
        value = node.value
        each = isinstance(value, Tensor) and value.shape[:1] == self.stay.shape
        if node.op == "edge_softmax" or not each:
            raise refuse(
                node.where,
                f"{node.op} of weights of edges is not known before a norm with self-loops of its"
                " own; make the convolution with add_self_loops=False",
            )
        value = value[self.stay]
        if node.op == "input":
            role, view = node.args[0], self.to.view
            return self.recording.of_loops(role, view, value, 1.0).node
        args, kwargs = map_nodes(self.of, node.args), map_nodes(self.of, node.kwargs)
        tape = self.recording.tape
        copy = replace(
            node,
            args=args,
            kwargs=kwargs,
            value=value,
            of=self.to.view.name,
            number=len(tape.nodes),
        )
        tape.nodes.append(copy)
        return copy
