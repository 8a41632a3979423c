"""What layers trained with DGL say of the features of edges."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.options.dgl import DglHeads
from embertide.models.options.layer import Gin


class DglEdgeGat(DglHeads):
    """Graph attention that reads features of edges."""

    between_types = True
    marks = ("attn_edge",)
    module = "dgl.nn.EdgeGATConv"
    conv: Literal["edge_gat"] = Field(description="graph attention with features of edges")
    edge_feats: int | None = Field(
        default=None,
        ge=1,
        description="features of each edge; checked against the weights, which show it",
    )
    negative_slope: float = Field(
        default=0.2, description="negative slope of the leaky_relu on the scores"
    )
    residual: bool = Field(
        default=True, description="adds the layer's input, always projected (res_fc)"
    )


class DglGine(Gin):
    """Graph isomorphism network with features of edges, as many as nodes have."""

    between_types = True
    module = "dgl.nn.GINEConv"
    conv: Literal["gine"] = Field(
        description="(1 + eps) times the node plus relu of neighbours and edges, then a function"
    )
