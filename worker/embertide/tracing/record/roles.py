"""What an edge's tensor is: the graph's own edges, their weights, or something made of them."""

from __future__ import annotations

from typing import Any

from embertide.tracing.record.traced import Node, Traced
from embertide.tracing.record.user_code import refuse

ALL = "*"
"""In place of a relation: the edges of all of them, one after another."""

OF_NODES = ("x", "numbers", "node_type")
"""Roles of inputs that have a row for each node."""

SHAPING = (
    *("view", "reshape", "flatten", "unsqueeze", "squeeze", "expand_as"),
    *("to", "float", "double", "type_as", "contiguous", "clone", "detach"),
)
"""Operations that change a tensor's shape or type alone."""


def is_of_several(node: Node) -> bool:
    """Whether its rows are of the nodes of all types, or of the edges of several relations."""
    return node.of.startswith(ALL)


def is_numbers(node: Node) -> bool:
    """Whether it is the nodes' own numbers, which ``forward`` gets in place of features."""
    return _input(node, "numbers") is not None


def is_weight(node: Node) -> bool:
    """Whether it is the stored edge weight of a relation."""
    return _input(node, "edge_weight") is not None


def is_features(node: Node) -> bool:
    """Whether it is the stored features of a relation's edges, an edge's still in one row.

    Raises:
        ModelError: rows of edges were mixed.
    """
    if _input(node, "edge_features") is None:
        return False
    if len(node.value) != len(shaped(node).value):
        raise refuse(node.where, f"{node.op} mixes rows of edges; keep the first dimension")
    return True


def filled_with(node: Node) -> Any:
    """What the self-loops that a module added have, of weights or features of edges."""
    return (*shaped(node).args, 1.0)[2]


def edges_of(node: Node) -> str | None:
    """Which edges it is the ``edge_index`` of, changed or not; None if it is no such."""
    return _input(node, "edge_index")


def target_of(node: Node) -> str | None:
    """Which edges it is the destinations of, edge by edge; None if it is no such."""
    return _input(node, "index")


def origin_of(node: Node) -> str | None:
    """Which edges it is the sources of, edge by edge; None if it is no such."""
    return _input(node, "origin")


def other_edges(value: Any) -> str:
    """What a message says of edges that are not the job's own."""
    if not isinstance(value, Traced) or not _is_of_edges(value.node):
        where = f" at {value.node.where}" if isinstance(value, Traced) else ""
        return (
            f"is given edges that forward makes itself{where}, such as those of nearest neighbours;"
            " a job's edges come from its files: make them before, as its edges or a relation"
        )
    where = f" at {value.node.where}"
    if value.node.picked:
        return (
            f"is given edges that a mask picks{where}; give each kind of edges a relation"
            " (edge_type == NUMBER, named by --graph), or let the mask, as a number, be their"
            " weight or multiply their messages"
        )
    return (
        f"is given edges that were changed{where}; convolutions here read the"
        " job's edges: change those (in the manifest reverse turns edges, as a relation of"
        " their own, directed: false adds the other way), or let the convolution do it"
        " (add_self_loops)"
    )


def _is_of_edges(node: Node) -> bool:
    """Whether it is made of the job's own edges, changed or not."""
    left, seen = [node], {node}
    while left:
        one = left.pop()
        if one.op == "input" and one.args[0] in ("edge_index", "index", "origin"):
            return True
        new = set(one.sources()) - seen
        seen |= new
        left.extend(new)
    return False


def _input(node: Node, role: str) -> str | None:
    source = shaped(node)
    if source.op != "input" or source.args[0] != role:
        return None
    return str(source.args[1])


def shaped(node: Node) -> Node:
    """The node before any changes of shape and type."""
    while node.op in SHAPING and isinstance(node.args[0], Node):
        node = node.args[0]
    return node
