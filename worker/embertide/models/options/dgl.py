"""What layers trained with DGL may say."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from embertide.models.options.layer import GIN, Gin, Layer, Problems

_SLOPE = "negative slope of the leaky_relu on the scores"


class DglGcn(Layer):
    """Graph convolution; the graph's own self-loops only, degrees without edge weights."""

    between_types = True
    target_optional = True
    weighted = True
    marks = ("weight",)
    module = "dgl.nn.GraphConv"
    conv: Literal["gcn"] = Field(description="graph convolution")
    norm: Literal["both", "right", "left", "none"] = Field(
        default="both",
        description="which degrees divide: both ends by their roots, the destination (`right`, a"
        " mean), the source (`left`), none",
    )
    weight: bool = Field(default=True, description="whether the module has a weight")
    edge_weight_norm: Literal["both", "right"] | None = Field(
        default=None,
        description="how EdgeWeightNorm prepared the edge weights that the forward was given: by"
        " the roots of both ends' weighted degrees, or the destination's; only with `norm: none`",
    )

    def conflicts(self) -> Problems:
        """Weights are normalised once."""
        if self.edge_weight_norm is None:
            return []
        if self.norm != "none":
            return [(("edge_weight_norm",), f"must not be given beside norm: {self.norm}")]
        if not self.uses_edge_weight:
            return [(("edge_weight_norm",), "must not be given where edge_weight is false")]
        return []


class DglSage(Layer):
    """GraphSAGE."""

    between_types = True
    weighted = True
    marks = ("fc_neigh.weight", "fc_self.weight")
    refused: ClassVar[dict[str, dict[str, str]]] = {
        "aggregator_type": {"lstm": "it depends on the order of the edges, and a graph has none"}
    }
    module = "dgl.nn.SAGEConv"
    conv: Literal["sage"] = Field(description="GraphSAGE")
    aggregator_type: Literal["mean", "gcn", "pool"] | None = Field(
        default=None,
        description="how neighbours are joined; without it, the parameters show it",
    )


class DglHeads(Layer):
    """DGL's attention gives [N, heads, width]: the model joins the heads or averages them."""

    num_heads: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    concat: bool = Field(
        default=True,
        description="heads side by side, as `.flatten(1)` does; false averages them, as"
        " `.mean(1)` does, before what follows unless `order` says where",
    )

    def averages_after(self) -> bool:
        """Averaging is the model's, so it may stand before or behind the activation."""
        return not self.concat


class DglGat(DglHeads):
    """Graph attention."""

    between_types = True
    weighted = False
    marks = ("attn_l", "attn_r")
    module = "dgl.nn.GATConv"
    conv: Literal["gat"] = Field(description="graph attention")
    negative_slope: float = Field(default=0.2, description=_SLOPE)
    residual: bool = Field(default=False, description="adds the layer's input (res_fc)")


class DglGatv2(DglHeads):
    """Graph attention whose scores depend on both ends."""

    between_types = True
    marks = ("attn", "fc_src.weight")
    module = "dgl.nn.GATv2Conv"
    conv: Literal["gatv2"] = Field(description="graph attention of the second kind")
    negative_slope: float = Field(default=0.2, description=_SLOPE)
    residual: bool = Field(default=False, description="adds the layer's input (res_fc)")
    share_weights: bool = Field(default=False, description="fc_src and fc_dst are one module")


class DglDotGat(DglHeads):
    """Attention by dot products; it has no bias, and its weights do not tell the heads."""

    between_types = True
    marks = ("fc.weight",)
    module = "dgl.nn.DotGatConv"
    conv: Literal["dotgat"] = Field(description="dot-product attention")
    bias: Literal[False] = Field(default=False, description="the module has none")
    num_heads: int = Field(ge=1, description="the weights of dotgat do not show it")


class DglGin(Gin):
    """Graph isomorphism network."""

    between_types = True
    target_optional = True
    weighted = True
    module = "dgl.nn.GINConv"
    conv: Literal["gin"] = Field(description=GIN)
    aggregator_type: Literal["sum", "max", "mean"] = Field(
        default="sum", description="how neighbours are joined"
    )


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
