"""The degrees that a program reads of nodes whose in-edges it need not go over for that.

They are kept with the rows of a version: where a row is computed over kept rows, its neighbours
have the degrees that they had then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from embertide.graph.views import EdgeView, Loops
from embertide.program.steps import Program
from embertide.program.steps.reference import End
from embertide.spec.relations import ends_of


class DegreeKind(NamedTuple):
    """Degrees of the nodes at one end of a relation's edges, with the self-loops of a view.

    Attributes:
        weighted: sums of the weights of edges; else numbers of edges.
    """

    relation: str
    end: End
    weighted: bool
    loops: Loops = "keep"
    loop_weight: float = 1.0

    @property
    def name(self) -> str:
        """The name of the tensor that is kept."""
        counted = "weights" if self.weighted else "edges"
        loops = self.loops if not self.weighted else f"{self.loops} {self.loop_weight!r}"
        return f"degrees {self.end} {counted} {loops} {self.relation}"

    @property
    def node_type(self) -> str:
        """Whose degrees they are."""
        source, destination = ends_of(self.relation)
        return destination if self.end == "in" else source


def kind_of(view: EdgeView, end: End, *, weighted: bool) -> DegreeKind:
    """The degrees of a view; weights count where it has them.

    Args:
        weighted: the norm adds weights up, and the graph has some.
    """
    counts = weighted and view.edge_weight
    if view.loops == "keep" or not counts:
        return DegreeKind(view.relation, end, counts, view.loops)
    return DegreeKind(view.relation, end, counts, view.loops, view.loop_weight)


def kinds_read(program: Program, weighted: Mapping[str, bool]) -> list[DegreeKind]:
    """The degrees that a program reads of nodes other than those whose in-edges it goes over.

    Args:
        weighted: relation -> whether its edges have weights.
    """
    kinds = [
        kind_of(view, end, weighted=adds and weighted[view.relation])
        for step in program.steps
        if (view := step.own_edges) is not None
        for end, adds in sorted(step.degrees_read | step.degrees_counted)
    ]
    return list(dict.fromkeys(kinds))
