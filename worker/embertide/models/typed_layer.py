"""Layers over the edges of several relations: what they read and make of each node type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embertide.models.layer import Layer, Problems
from embertide.models.node_types import NodeTypes, Relations
from embertide.spec.relations import Relation

if TYPE_CHECKING:
    from embertide.models.builder import ProgramBuilder
    from embertide.models.weights import Scope

Tensors = dict[str, str]
"""Node type -> tensor."""


def parse_relation(text: object) -> Relation:
    """The relation of that text.

    Raises:
        ValueError: it is none; says how one is written.
    """
    parts = text.split(":") if isinstance(text, str) else []
    if len(parts) != 3 or not all(parts):
        raise ValueError(
            f"is {text!r}; must be source type, edge type and destination type, such as"
            " user:buys:item"
        )
    return Relation(*parts)


class SeveralTypes(Layer):
    """A layer over the edges of several relations: one tensor for each destination type."""

    def over(self, listed: Relations) -> Relations:
        """The relations whose edges it reads, of those that the description lists."""
        return listed

    def wants(self, relation: Relation) -> list[str]:
        """The node types whose tensors it reads for a relation."""
        return [relation.source, relation.destination]

    def makes(self, listed: Relations, _have: set[str]) -> set[str]:
        """The node types that have a tensor after it."""
        return {relation.destination for relation in self.over(listed)}

    def misfits(self, _listed: Relations) -> Problems:
        """What does not fit the relations."""
        return []

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """Write the layer's steps.

        Args:
            s: the layer's parameters.
            x: node type -> the tensor [N, columns] of its rows.

        Returns:
            Destination type -> the name of its result.
        """
        raise NotImplementedError

    def no_edge_weights(self) -> str:
        """Each convolution has its own option."""
        return f"edge_weight is an option of each convolution of {self.conv}"
