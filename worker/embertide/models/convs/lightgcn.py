"""LightGCN (He et al., 2020, eq. 4) with all its layers.

    out = sum over k of alpha_k A^k x

x has the rows of the table; x and out [N, in].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import gcn_hop
from embertide.models.convs.shared.option_texts import NORMALIZE
from embertide.models.ends import Ends
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("pyg")
class PygLightGcn(Layer):
    """LightGCN, whole: the sum of all its layers and the table, each with its `alpha`.

    The table, ``embedding.weight``, is the features: write its rows as the features' file.
    """

    weighted = True
    keeps_width = True
    marks = ("alpha",)
    module = "torch_geometric.nn.models.LightGCN"
    conv: Literal["lightgcn"] = Field(description="LightGCN with all its layers")
    normalize: bool = Field(default=True, description=NORMALIZE)
    bias: Literal[False] = Field(default=False, description="it has none")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """LightGCN (He et al., eq. 4); ``alpha`` has one factor for the table and each layer."""
        if s.has("embedding.weight"):
            s.raw("embedding.weight", "nodes", "in")
        alpha = s.raw("alpha", "layers")
        if alpha is None:
            return x.source
        factors = tuple(alpha.double().tolist())
        hop = gcn_hop(normalize=self.normalize, edge_weight=self.uses_edge_weight)
        return hop.times(b, x.source, len(factors) - 1, hops=factors)
