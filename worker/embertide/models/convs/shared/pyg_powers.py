"""PyG's filters without weights, and the one Linear of each."""

from __future__ import annotations

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import gcn_hop
from embertide.models.convs.shared.option_texts import LOOPS
from embertide.models.layer import Layer
from embertide.models.weights import Scope


class PygPowers(Layer):
    """A filter without weights, then one Linear."""

    weighted = True
    marks = ("lin.weight",)
    K: int = Field(default=1, ge=1, description="how often neighbours are summed")
    add_self_loops: bool = Field(default=True, description=LOOPS)


def filtered(
    b: ProgramBuilder, s: Scope, o: PygPowers, x: str, hops: tuple[float, ...] | None
) -> str:
    """A filter without weights and its Linear; the two commute."""
    hop = gcn_hop(loops=o.add_self_loops, edge_weight=o.uses_edge_weight)
    weight = s.take("lin.weight", "out", "in")
    bias = s.take("lin.bias", "out") if o.bias else None
    if s.size("out") >= s.size("in"):
        return b.linear(hop.times(b, x, o.K, hops=hops), weight, s.size("out"), bias)
    total = hop.times(b, b.linear(x, weight, s.size("out")), o.K, hops=hops)
    return total if bias is None else b.affine(total, None, bias)
