"""What layers trained with PyTorch Geometric may say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.options.layer import GIN, Gin, Layer, Problems
from embertide.models.options.pyg_edges import EDGE_DIM

LOOPS = (
    "one self-loop for every node, in place of those the graph has; where edge weights count, one "
    "that exists keeps its weight, of several the largest (PyG: that of the last one)"
)
"""What the option ``add_self_loops`` does."""
_SLOPE = "negative slope of the leaky_relu on the scores"
_AGGR = "how neighbours are joined; `add` is `sum`"
_ORDERED = "it depends on the order of the edges, and a graph has none"
_REFUSED = {
    "aggr": {
        "lstm": _ORDERED,
        "gru": _ORDERED,
        **dict.fromkeys(
            ("median", "quantile", "mul", "softmax", "powermean", "sort"), "it is not supported"
        ),
    }
}


class PygGcn(Layer):
    """Graph convolution; degrees are sums of edge weights over in-edges at both ends."""

    weighted = True
    marks = ("lin.weight",)
    module = "torch_geometric.nn.GCNConv"
    conv: Literal["gcn"] = Field(description="graph convolution")
    normalize: bool = Field(default=True, description="divide by the roots of both ends' degrees")
    improved: bool = Field(default=False, description="a new self-loop weighs 2, not 1")
    add_self_loops: bool | None = Field(
        default=None, description=f"{LOOPS}; without it, as `normalize`"
    )

    def conflicts(self) -> Problems:
        """PyG refuses to add loops without normalising."""
        if self.add_self_loops and not self.normalize:
            return [(("add_self_loops",), "must not be true where normalize is false")]
        return []


class PygSage(Layer):
    """GraphSAGE."""

    between_types = True
    target_optional = True
    marks = ("lin_l.weight", "lin_r.weight")
    refused = _REFUSED
    module = "torch_geometric.nn.SAGEConv"
    conv: Literal["sage"] = Field(description="GraphSAGE")
    aggr: Literal["mean", "max", "sum", "add", "min", "var", "std"] = Field(
        default="mean", description=_AGGR
    )
    aggrs: tuple[Literal["mean", "max", "sum", "add", "min", "var", "std"], ...] | None = Field(
        default=None,
        strict=False,
        min_length=1,
        description="in the place of `aggr` where the module was given a list of them: their"
        " results side by side",
    )
    normalize: bool = Field(default=False, description="rows of the result get length one")
    root_weight: bool = Field(default=True, description="adds the node itself (lin_r)")
    project: bool = Field(default=False, description="neighbours pass lin and relu first")

    def conflicts(self) -> Problems:
        """One way of aggregating, or several."""
        if self.aggrs is not None and self.aggr != "mean":
            return [(("aggr",), "is said by aggrs, too; remove one of the two")]
        return []


class PygGraph(Layer):
    """The node and its neighbours, each through its own Linear; no self-loops, no degrees."""

    between_types = True
    target_optional = True
    weighted = True
    marks = ("lin_rel.weight",)
    refused = _REFUSED
    module = "torch_geometric.nn.GraphConv"
    conv: Literal["graph"] = Field(description="higher-order graph convolution")
    aggr: Literal["add", "sum", "mean", "max", "min", "var", "std"] = Field(
        default="add", description=_AGGR
    )


class PygHeads(Layer):
    """What PyG's two kinds of graph attention have in common."""

    heads: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    concat: bool = Field(default=True, description="heads side by side; false averages them")
    negative_slope: float = Field(default=0.2, description=_SLOPE)
    add_self_loops: bool = Field(default=True, description=LOOPS)
    residual: bool = Field(default=False, description="adds the layer's input through `res`")
    edge_dim: int | None = Field(default=None, ge=1, description=f"{EDGE_DIM}, through `lin_edge`")
    fill_value: Literal["mean", "add", "min", "max", "mul"] | float = Field(
        default="mean",
        description="features of a new self-loop: a number for all, or what those of the node's"
        " in-edges come to",
    )

    def conflicts(self) -> Problems:
        """Without features nothing is filled in."""
        if "fill_value" in self.model_fields_set and self.edge_dim is None:
            return [(("fill_value",), "is for layers with edge_dim; remove it")]
        return []


class PygGat(PygHeads):
    """Graph attention."""

    between_types = True
    marks = ("att_src", "att_dst")
    module = "torch_geometric.nn.GATConv"
    conv: Literal["gat"] = Field(description="graph attention")


class PygGatv2(PygHeads):
    """Graph attention whose scores depend on both ends."""

    between_types = True
    marks = ("att", "lin_l.weight")
    module = "torch_geometric.nn.GATv2Conv"
    conv: Literal["gatv2"] = Field(description="graph attention of the second kind")
    share_weights: bool = Field(default=False, description="lin_l and lin_r are one module")


class PygTransformer(Layer):
    """Attention by dot products of keys and queries (UniMP)."""

    between_types = True
    marks = ("lin_key.weight",)
    module = "torch_geometric.nn.TransformerConv"
    conv: Literal["transformer"] = Field(description="transformer attention")
    heads: int = Field(
        default=1, ge=1, description="the weights do not show it where `concat` joins the heads"
    )
    concat: bool = Field(default=True, description="heads side by side; false averages them")
    root_weight: bool = Field(default=True, description="adds the node itself (lin_skip)")
    beta: bool = Field(
        default=False, description="a gate weighs the node against its neighbours (lin_beta)"
    )
    edge_dim: int | None = Field(default=None, ge=1, description=f"{EDGE_DIM}, through `lin_edge`")


class PygLe(Layer):
    """Differences to the neighbours, each through its own Linear (ASAP's local extrema)."""

    between_types = True
    weighted = True
    marks = ("lin3.weight",)
    module = "torch_geometric.nn.LEConv"
    conv: Literal["le"] = Field(description="local extremum convolution")


class PygAgnn(Layer):
    """Attention by the cosine of both ends."""

    keeps_width = True
    marks = ("beta",)
    module = "torch_geometric.nn.AGNNConv"
    conv: Literal["agnn"] = Field(description="attention by cosine")
    add_self_loops: bool = Field(default=True, description=LOOPS)
    bias: Literal[False] = Field(default=False, description="the module has none")


class PygGin(Gin):
    """Graph isomorphism network."""

    between_types = True
    target_optional = True
    refused = _REFUSED
    module = "torch_geometric.nn.GINConv"
    conv: Literal["gin"] = Field(description=GIN)
    aggr: Literal["add", "sum", "max", "mean", "min", "var", "std"] = Field(
        default="add", description=_AGGR
    )


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
