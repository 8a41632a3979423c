"""An input whose rows name two nodes, with the nodes of both ends' types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from embertide.graph.node_ids import NodeIds
from embertide.spec.edges import EdgeInput
from embertide.spec.nodes import NodeInput

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Ends:
    """An edge type and the nodes that its edges lead from and to; K features of each edge.

    Attributes:
        categories: columns of the features that hold whole numbers below the one beside each.
        only: [N] bool of either end: edges into or out of these nodes alone are kept; None: all.
    """

    edge: EdgeInput
    sources: Nodes
    destinations: Nodes
    features: int = 0
    categories: Sequence[tuple[int, int]] = ()
    only: tuple[Mask, Mask] | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """Nodes of either end."""
        return self.sources.ids.count, self.destinations.ids.count

    @property
    def collective(self) -> bool:
        """Whether ids are looked up together: every rank must call."""
        return self.sources.ids.collective or self.destinations.ids.collective


class Nodes(Protocol):
    """A node type, as edges need it."""

    @property
    def node(self) -> NodeInput:
        """What the manifest says of it."""

    @property
    def ids(self) -> NodeIds:
        """Its ids."""


def described(nodes: Nodes) -> str:
    """For messages: which nodes of a type there are."""
    node, count = nodes.node, nodes.ids.count
    named = f"{count:,} nodes of type {node.name!r}"
    if node.ids == "dense":
        return f"{named}, 0 to {count - 1}"
    more = " and its features" if node.table and node.features else ""
    return f"{named}, those of {node.listed_in}{more}"
