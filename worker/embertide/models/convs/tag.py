"""Topology adaptive convolution (Du et al., 2017), for both libraries.

    out = sum over k from 0 to K of A^k x W_k + b for the normalised graph A

x [N, in], out [N, out].
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import dgl_hop, gcn_hop
from embertide.models.convs.shared.option_texts import NORMALIZE
from embertide.models.convs.shared.polynomial import powers
from embertide.models.convs.shared.split_linear import count_linears, split_linear
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution(
    "dgl",
    module=KnownModule(bias="lin.bias", after=("_activation",), x="feat", weight="edge_weight"),
)
class DglTag(Layer):
    """All powers of the normalised graph up to k, side by side, through one Linear."""

    weighted = False
    marks = ("lin.weight",)
    module = "dgl.nn.TAGConv"
    conv: Literal["tag"] = Field(description="topology adaptive convolution")
    k: int = Field(default=2, ge=1, description="how often neighbours are summed")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """TAGConv: its Linear reads all powers side by side, so it is one for each of them."""
        weights = split_linear(s, "lin.weight", self.k + 1)
        bias = s.take("lin.bias", "out") if self.bias else None
        return powers(
            b,
            x.source,
            weights,
            s.size("out"),
            bias,
            partial(dgl_hop(self.uses_edge_weight).once, b),
        )


@convolution("pyg", module=KnownModule(weight="edge_weight"))
class PygTag(Layer):
    """All powers of the normalised graph up to K, each through its own Linear."""

    weighted = True
    marks = ("lins.0.weight",)
    module = "torch_geometric.nn.TAGConv"
    conv: Literal["tag"] = Field(description="topology adaptive convolution")
    K: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    normalize: bool = Field(default=True, description=NORMALIZE)

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """TAGConv: the Linears ``lins`` have no bias of their own."""
        count = self.K + 1 if self.K is not None else count_linears(s)
        weights = [s.take(f"lins.{power}.weight", "out", "in") for power in range(count)]
        bias = s.take("bias", "out") if self.bias else None
        hop = gcn_hop(normalize=self.normalize, edge_weight=self.uses_edge_weight)
        return powers(b, x.source, weights, s.size("out"), bias, partial(hop.once, b))
