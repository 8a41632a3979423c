"""LightGCN's convolution (He et al., 2020, eq. 3): neighbours' rows, without weights.

    out_i = sum over edges j -> i of w_ji x_j / sqrt(d_j d_i)

x and out [N, in].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import gcn_hop
from embertide.models.convs.shared.option_texts import NORMALIZE
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("pyg", module=KnownModule(bias="", weight="edge_weight"))
class PygLg(Layer):
    """Neighbours' features once, without weights and self-loops."""

    weighted = True
    has_parameters = False
    keeps_width = True
    module = "torch_geometric.nn.LGConv"
    conv: Literal["lg"] = Field(description="LightGCN's convolution")
    normalize: bool = Field(default=True, description=NORMALIZE)
    bias: Literal[False] = Field(default=False, description="it has no parameters")

    def steps(self, b: ProgramBuilder, _s: Scope, x: Ends) -> str:
        """LGConv."""
        return gcn_hop(normalize=self.normalize, edge_weight=self.uses_edge_weight).once(
            b, x.source
        )
