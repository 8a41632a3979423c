"""Propagation without weights: APPNP, and SGConv without its Linear, for both libraries.

    h_0 = x,  h_k = (1 - alpha) A h_(k-1) + alpha x

x and out = h_K [N, in].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import DGL_NORMS, Hop, gcn_hop
from embertide.models.convs.shared.option_texts import LOOPS
from embertide.models.ends import Ends
from embertide.models.layer import Layer, Problems
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl")
class DglPropagate(Layer):
    """Neighbours' features k times, without weights: SGConv and APPNPConv without their Linear."""

    has_parameters = False
    keeps_width = True
    module = "dgl.nn.APPNPConv, dgl.nn.SGConv"
    conv: Literal["propagate"] = Field(description="propagation without weights")
    k: int = Field(ge=1, description="how often neighbours are summed")
    norm: Literal["both", "in_degree", "right", "left", "none"] = Field(
        description="which degrees divide: `both` as in APPNPConv and GraphConv (roots of"
        " out-degrees at the source, of in-degrees at the destination), `in_degree` as in SGConv"
        " (roots of in-degrees at both ends), `right`, `left` and `none` as in GraphConv"
    )
    alpha: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the layer's input in every step (teleport, APPNPConv)",
    )
    bias: Literal[False] = Field(default=False, description="it has no parameters")

    def no_edge_weights(self) -> str:
        """DGL would normalise them by weighted degrees (EdgeWeightNorm)."""
        return "propagation over edge weights (DGL's EdgeWeightNorm) is not supported"

    def steps(self, b: ProgramBuilder, _s: Scope, x: Ends) -> str:
        """APPNPConv; with ``norm: in_degree`` SGConv before its Linear."""
        return Hop(norm=DGL_NORMS[self.norm]).times(b, x.source, self.k, alpha=self.alpha)


@convolution("pyg")
class PygPropagate(Layer):
    """Neighbours' features K times, without weights: APPNP, and SGConv without its Linear."""

    weighted = True
    has_parameters = False
    keeps_width = True
    module = "torch_geometric.nn.APPNP, torch_geometric.nn.SGConv"
    conv: Literal["propagate"] = Field(description="propagation without weights")
    K: int = Field(ge=1, description="how often neighbours are summed")
    alpha: float = Field(
        default=0.0, ge=0, le=1, description="share of the layer's input in every step (APPNP)"
    )
    normalize: bool = Field(
        default=True, description="as GCNConv: divide by the roots of both ends' degrees"
    )
    add_self_loops: bool | None = Field(
        default=None, description=f"{LOOPS}; without it, as `normalize`"
    )
    bias: Literal[False] = Field(default=False, description="it has no parameters")

    def conflicts(self) -> Problems:
        """APPNP adds loops only where it normalises."""
        if self.add_self_loops and not self.normalize:
            return [(("add_self_loops",), "must not be true where normalize is false")]
        return []

    def steps(self, b: ProgramBuilder, _s: Scope, x: Ends) -> str:
        """APPNP; with ``alpha: 0`` SGConv before its Linear."""
        hop = gcn_hop(
            normalize=self.normalize,
            loops=self.normalize if self.add_self_loops is None else self.add_self_loops,
            edge_weight=self.uses_edge_weight,
        )
        return hop.times(b, x.source, self.K, alpha=self.alpha)
