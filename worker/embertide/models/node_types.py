"""The node types and relations of a described model, and where modules of a type are stored."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.spec.relations import Relation

Relations = tuple[Relation, ...]
WHERE = "{type}"
"""Stands in a prefix for the name of the node type."""


@dataclass(frozen=True)
class NodeTypes:
    """What ``model.yaml`` says of node types; of one type that it does not name, nothing.

    Attributes:
        relations: in the order of weights that are numbered by relation.
        given: the node types as they are listed.
        features: those with features; None for all.
        outputs: those that get embeddings; none for all that have a tensor in the end.
        every: whether a layer makes a tensor of every type, as a module does that has the nodes
            of all types in one tensor.
    """

    relations: Relations
    given: tuple[str, ...]
    features: tuple[str, ...] | None
    outputs: tuple[str, ...]
    every: bool = False

    @property
    def named(self) -> bool:
        """Whether the model names its node types."""
        return bool(self.relations)

    @property
    def names(self) -> tuple[str, ...]:
        """All, in the order of weights that are numbered by node type; "" for the one."""
        ends = [name for one in self.relations for name in (one.source, one.destination)]
        return self.given or tuple(dict.fromkeys(ends)) or ("",)

    def into(self, node_type: str) -> Relations:
        """The relations that lead to a node type."""
        return tuple(one for one in self.relations if one.destination == node_type)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those with features."""
        return self.names if self.features is None else self.features


def prefix_of(prefix: str, node_type: str, names: list[str]) -> str:
    """Where a module of a node type is stored.

    ``prefix`` may have ``{type}`` at the place of its name. Else the type's name stands after it,
    as in a ModuleDict (in PyG's HeteroDictLinear after ``lins``, in DGL's HeteroLinear after
    ``linears``), unless one module is shared by all.

    Args:
        names: of all parameters.
    """
    if not node_type:
        return prefix
    if WHERE in prefix:
        return prefix.replace(WHERE, node_type)
    places = [f"{prefix}.{inner}{node_type}" for inner in ("", "lins.", "linears.")]
    for place in places:
        if any(name.startswith(f"{place}.") for name in names):
            return place
    shared = any(name.rpartition(".")[0] in (prefix, f"{prefix}.module") for name in names)
    return prefix if shared else places[0]
