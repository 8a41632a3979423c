"""Simple graph convolution (Wu et al., 2019), for both libraries.

    out = A^K x W + b for the normalised graph A,    x [N, in], out [N, out]

The Linear comes first where it makes rows narrower.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import dgl_hop
from embertide.models.convs.shared.pyg_powers import PygPowers, filtered
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution(
    "dgl",
    module=KnownModule(
        bias="fc.bias", x="feat", weight="edge_weight", by_messages=lambda m: m.norm is not None
    ),
)
class DglSg(Layer):
    """Neighbours' features k times, then one Linear."""

    weighted = False
    marks = ("fc.weight",)
    module = "dgl.nn.SGConv"
    conv: Literal["sg"] = Field(description="simple graph convolution")
    k: int = Field(default=1, ge=1, description="how often neighbours are summed")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """SGConv: the k sums and the Linear, which stands where its rows are narrower."""
        weight = s.take("fc.weight", "out", "in")
        bias = s.take("fc.bias", "out") if self.bias else None
        if s.size("out") >= s.size("in"):
            return b.linear(
                dgl_hop(self.uses_edge_weight).times(b, x.source, self.k),
                weight,
                s.size("out"),
                bias,
            )
        total = dgl_hop(self.uses_edge_weight).times(
            b, b.linear(x.source, weight, s.size("out")), self.k
        )
        return total if bias is None else b.affine(total, None, bias)


@convolution("pyg", module=KnownModule(bias="lin.bias", weight="edge_weight"))
class PygSg(PygPowers):
    """Neighbours' features K times, then one Linear."""

    module = "torch_geometric.nn.SGConv"
    conv: Literal["sg"] = Field(description="simple graph convolution")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """SGConv: the Linear comes before the K sums where it makes their rows narrower."""
        return filtered(b, s, self, x.source, None)
