"""Personalised PageRank (Gasteiger et al., 2019, eq. 4), for both libraries.

    h_0 = x,  h_k = (1 - alpha) A h_(k-1) + alpha x

x and out = h_K [N, in].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import dgl_hop, gcn_hop
from embertide.models.convs.shared.option_texts import LOOPS, NORMALIZE
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl", module=KnownModule(bias="", x="feat", weight="edge_weight"))
class DglAppnp(Layer):
    """Personalised PageRank of the layer's input; it has no parameters."""

    weighted = False
    has_parameters = False
    keeps_width = True
    module = "dgl.nn.APPNPConv"
    conv: Literal["appnp"] = Field(description="personalised PageRank")
    k: int = Field(ge=1, description="how often neighbours are summed")
    alpha: float = Field(ge=0, le=1, description="share of the layer's input in every step")
    bias: Literal[False] = Field(default=False, description="it has no parameters")

    def steps(self, b: ProgramBuilder, _s: Scope, x: Ends) -> str:
        """APPNPConv: degrees as GraphConv's ``both``."""
        return dgl_hop(self.uses_edge_weight, "both").times(b, x.source, self.k, alpha=self.alpha)


@convolution("pyg", module=KnownModule(bias="", weight="edge_weight"))
class PygAppnp(Layer):
    """Personalised PageRank of the layer's input; it has no parameters."""

    weighted = True
    has_parameters = False
    keeps_width = True
    module = "torch_geometric.nn.APPNP"
    conv: Literal["appnp"] = Field(description="personalised PageRank")
    K: int = Field(ge=1, description="how often neighbours are summed")
    alpha: float = Field(ge=0, le=1, description="share of the layer's input in every step")
    normalize: bool = Field(default=True, description=NORMALIZE)
    add_self_loops: bool = Field(default=True, description=f"{LOOPS}; only with `normalize`")
    bias: Literal[False] = Field(default=False, description="it has no parameters")

    def steps(self, b: ProgramBuilder, _s: Scope, x: Ends) -> str:
        """APPNP; it adds self-loops only where it normalises."""
        loops = self.normalize and self.add_self_loops
        hop = gcn_hop(normalize=self.normalize, loops=loops, edge_weight=self.uses_edge_weight)
        return hop.times(b, x.source, self.K, alpha=self.alpha)
