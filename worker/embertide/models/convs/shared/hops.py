"""The normalised sum over in-edges that a filter repeats: once, or several times in a row.

Steps of one layer read one layer graph, so a sampled run draws one sample for all of them, as the
libraries' modules do on a sampled graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from embertide.models.builder import ProgramBuilder
from embertide.program.steps import Loops, Norm


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One sum over in-edges: which degrees divide, which self-loops and weights count."""

    norm: Norm = "none"
    loops: Loops = "keep"
    loop_weight: float = 1.0
    edge_weight: bool = False

    def once(self, b: ProgramBuilder, x: str) -> str:
        """The sum, which may be one with a product after it."""
        return b.aggregate(
            x,
            norm=self.norm,
            loops=self.loops,
            loop_weight=self.loop_weight,
            edge_weight=self.edge_weight,
        )

    def times(
        self,
        b: ProgramBuilder,
        x: str,
        times: int,
        *,
        alpha: float = 0.0,
        hops: tuple[float, ...] | None = None,
    ) -> str:
        """``times`` sums with a share ``alpha`` of x in each, or the sum of all by ``hops``."""
        if times == 1 and not alpha and hops is None:
            return self.once(b, x)
        return b.propagate(
            x,
            times=times,
            alpha=alpha,
            hops=hops,
            norm=self.norm,
            loops=self.loops,
            loop_weight=self.loop_weight,
            edge_weight=self.edge_weight,
        )


DGL_NORMS: dict[str, Norm] = {
    "both": "both",
    "in_degree": "sym_in",
    "right": "in",
    "left": "out",
    "none": "none",
}
"""DGL's names of the degrees that divide -> those of a step."""


def gcn_hop(
    *,
    normalize: bool = True,
    loops: bool = False,
    loop_weight: float = 1.0,
    edge_weight: bool,
) -> Hop:
    """A sum over in-edges with gcn_norm's degrees; ``loops``: one self-loop for every node."""
    return Hop(
        norm="sym_in_weighted" if normalize else "none",
        loops="single" if loops else "keep",
        loop_weight=loop_weight,
        edge_weight=edge_weight,
    )


def dgl_hop(weighted: bool, norm: Norm = "sym_in") -> Hop:
    """DGL's sum: by in-degrees at both ends, or by weighted degrees where weights count."""
    return Hop(norm="both_weighted" if weighted else norm, edge_weight=weighted)
