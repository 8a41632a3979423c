"""The edges of a relation as a module has changed them: without self-loops, or with new ones."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from embertide.graph.views import Loops
from embertide.tracing.record.graphs import RandomEdges
from embertide.tracing.record.user_code import here, refuse

Change = Literal["add_self_loops", "add_remaining_self_loops", "remove_self_loops"]
"""PyG's functions; DGL's add one more to every node, as the first does."""

_DESCRIBED: dict[Loops, str] = {
    "keep": "",
    "single": "with one self-loop at each node",
    "replace": "with a new self-loop at each node in place of others",
    "more": "with one more self-loop at each node",
    "none": "without self-loops",
}
_AFTER: dict[tuple[Loops, Change], Loops] = {
    ("keep", "add_self_loops"): "more",
    **{(loops, "remove_self_loops"): "none" for loops in _DESCRIBED},
    **{(loops, "add_remaining_self_loops"): "single" for loops in _DESCRIBED},
    **{("none", change): "replace" for change in ("add_self_loops", "add_remaining_self_loops")},
    ("replace", "add_remaining_self_loops"): "replace",
}


class View(NamedTuple):
    """A relation's edges with their self-loops; ``relation`` is "" in a graph that has one."""

    relation: str = ""
    loops: Loops = "keep"

    @property
    def name(self) -> str:
        """The name of its tensors' rows: the relation, with its changed self-loops if any."""
        return " ".join(filter(None, (self.relation, _DESCRIBED[self.loops])))

    def loops_of(self, weighted: bool) -> Loops:
        """The same in a step: where no weights count, new loops are as those that were there."""
        return "single" if self.loops == "replace" and not weighted else self.loops

    def after(self, change: Change) -> View:
        """The view after one more change.

        Raises:
            ModelError: nodes would have two new self-loops.
        """
        loops = _AFTER.get((self.loops, change))
        if loops is None:
            raise refuse(
                here(),
                f"{change} of edges {_DESCRIBED[self.loops]} gives nodes a second new one; add"
                " self-loops once",
            )
        return self._replace(loops=loops)

    def of(self, edges: RandomEdges, nodes: int) -> RandomEdges:
        """The edges so seen, in the order of PyG's functions; weights and features are left out.

        Args:
            edges: of the relation, as the graph has them.
            nodes: of its only node type.
        """
        stay = torch.ones_like(edges.src, dtype=torch.bool)
        if self.loops in ("single", "replace", "none"):
            stay = edges.src != edges.dst
        new = torch.arange(0 if self.loops in ("keep", "none") else nodes)
        src, dst = (torch.cat([ends[stay], new]) for ends in (edges.src, edges.dst))
        return RandomEdges(src, dst, torch.ones(len(src), dtype=torch.float64))
