"""What an edge's tensor is: the graph's own edges, their weights, or something made of them."""

from __future__ import annotations

from embertide.tracing.tape import Node

_SHAPING = (
    *("view", "reshape", "flatten", "unsqueeze", "squeeze", "expand_as"),
    *("to", "float", "double", "type_as", "contiguous", "clone", "detach"),
)


def is_weight(node: Node) -> bool:
    """Whether it is the graph's stored edge weight."""
    return _is_input(node, "edge_weight")


def is_edges(node: Node) -> bool:
    """Whether it is the graph's own ``edge_index``."""
    return _is_input(node, "edge_index")


def _is_input(node: Node, role: str) -> bool:
    found = shaped(node)
    return found.op == "input" and found.args == (role,)


def shaped(node: Node) -> Node:
    """The node behind changes of shape and type."""
    while node.op in _SHAPING:
        node = node.args[0]
    return node
