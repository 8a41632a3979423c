"""Graph filters and propagation as PyTorch Geometric has them: what their layers may say."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from embertide.models.options.layer import Earlier, Layer, Place, Problems
from embertide.models.options.parts import Activation, ActivationOptions
from embertide.models.options.pyg import LOOPS

_NORMALIZE = "divide by the roots of both ends' degrees"


class PygAppnp(Layer):
    """Personalised PageRank of the layer's input; it has no parameters."""

    weighted = True
    has_parameters = False
    keeps_width = True
    module = "torch_geometric.nn.APPNP"
    conv: Literal["appnp"] = Field(description="personalised PageRank")
    K: int = Field(ge=1, description="how often neighbours are summed")
    alpha: float = Field(ge=0, le=1, description="share of the layer's input in every step")
    normalize: bool = Field(default=True, description=_NORMALIZE)
    add_self_loops: bool = Field(default=True, description=f"{LOOPS}; only with `normalize`")
    bias: Literal[False] = Field(default=False, description="it has no parameters")


class PygPowers(Layer):
    """A filter without weights, then one Linear."""

    weighted = True
    marks = ("lin.weight",)
    K: int = Field(default=1, ge=1, description="how often neighbours are summed")
    add_self_loops: bool = Field(default=True, description=LOOPS)


class PygSg(PygPowers):
    """Neighbours' features K times, then one Linear."""

    module = "torch_geometric.nn.SGConv"
    conv: Literal["sg"] = Field(description="simple graph convolution")


class PygSsg(PygPowers):
    """The mean of all powers up to K and the input itself, then one Linear."""

    module = "torch_geometric.nn.SSGConv"
    conv: Literal["ssg"] = Field(description="simple spectral graph convolution")
    alpha: float = Field(ge=0, le=1, description="share of the layer's input")


class PygLg(Layer):
    """Neighbours' features once, without weights and self-loops."""

    weighted = True
    has_parameters = False
    keeps_width = True
    module = "torch_geometric.nn.LGConv"
    conv: Literal["lg"] = Field(description="LightGCN's convolution")
    normalize: bool = Field(default=True, description=_NORMALIZE)
    bias: Literal[False] = Field(default=False, description="it has no parameters")


class PygLightGcn(Layer):
    """LightGCN, whole: the sum of all its layers and the table, each with its `alpha`.

    The table, ``embedding.weight``, is the features: write its rows as the features' file.
    """

    weighted = True
    keeps_width = True
    marks = ("alpha",)
    module = "torch_geometric.nn.models.LightGCN"
    conv: Literal["lightgcn"] = Field(description="LightGCN with all its layers")
    normalize: bool = Field(default=True, description=_NORMALIZE)
    bias: Literal[False] = Field(default=False, description="it has none")


class PygTag(Layer):
    """All powers of the normalised graph up to K, each through its own Linear."""

    weighted = True
    marks = ("lins.0.weight",)
    module = "torch_geometric.nn.TAGConv"
    conv: Literal["tag"] = Field(description="topology adaptive convolution")
    K: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    normalize: bool = Field(default=True, description=_NORMALIZE)


class PygCheb(Layer):
    """Chebyshev polynomials of the Laplacian, without self-loops, each through its own Linear.

    Degrees are sums of weights over out-edges, as the library's Laplacian has them.
    """

    weighted = True
    marks = ("lins.0.weight",)
    refused: ClassVar[dict[str, dict[str, str]]] = {
        "normalization": {
            "None": "without a normalization the library scales by the graph's largest degree"
        }
    }
    module = "torch_geometric.nn.ChebConv"
    conv: Literal["cheb"] = Field(description="Chebyshev filter")
    K: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    normalization: Literal["sym", "rw"] = Field(
        default="sym", description="of the Laplacian: symmetric, or a random walk's"
    )
    lambda_max: float = Field(
        default=2.0, gt=0, description="largest eigenvalue, as the forward was given it"
    )


class PygArma(Layer):
    """Stacks of recursive filters, averaged; no self-loops are added."""

    weighted = True
    marks = ("init_weight",)
    module = "torch_geometric.nn.ARMAConv"
    conv: Literal["arma"] = Field(description="auto-regressive moving average filters")
    num_layers: int | None = Field(
        default=None,
        ge=1,
        description="how often neighbours are summed; the weights show it, but not those of"
        " `shared_weights` (1)",
    )
    shared_weights: bool = Field(default=False, description="all its layers have one weight")
    act: Activation | None = Field(
        default=ActivationOptions(kind="relu"),
        description="an activation after each of its layers",
    )


class PygGcn2(Layer):
    """GCNII: an initial residual and an identity mapping."""

    weighted = True
    marks = ("weight1",)
    module = "torch_geometric.nn.GCN2Conv"
    conv: Literal["gcn2"] = Field(description="GCNII")
    x_0: Earlier = Field(
        description="the initial representation: `input` (the features) or the number of the"
        " layer whose output it is (the first is 0)"
    )
    alpha: float = Field(description="share of the initial representation")
    theta: float | None = Field(
        default=None, description="with `layer`, the share of the weights is log(theta / layer + 1)"
    )
    layer: int | None = Field(default=None, ge=1, description="the layer's number in training")
    normalize: bool = Field(default=True, description=_NORMALIZE)
    add_self_loops: bool = Field(default=True, description=f"{LOOPS}; only with `normalize`")
    bias: Literal[False] = Field(default=False, description="the module has none")

    def conflicts(self) -> Problems:
        """The library takes both or none of them."""
        if (self.theta is None) != (self.layer is None):
            missing = "theta" if self.theta is None else "layer"
            return [((missing,), "must be given, too: theta and layer belong together")]
        return []

    def earlier(self) -> list[tuple[Place, int]]:
        """The initial representation is another layer's output."""
        own: list[tuple[Place, int]] = [(("x_0",), self.x_0)] if isinstance(self.x_0, int) else []
        return [*super().earlier(), *own]


class PygFa(Layer):
    """Sums whose signs are learnt: each edge counts tanh of a score of both its ends."""

    weighted = False
    marks = ("att_l.weight",)
    module = "torch_geometric.nn.FAConv"
    conv: Literal["fa"] = Field(description="frequency adaptive convolution")
    x_0: Earlier = Field(
        description="the initial representation: `input` (the features) or the number of the"
        " layer whose output it is (the first is 0)"
    )
    eps: float = Field(default=0.1, description="share of the initial representation")
    normalize: bool = Field(default=True, description=_NORMALIZE)
    add_self_loops: bool = Field(default=True, description=f"{LOOPS}; only with `normalize`")
    bias: Literal[False] = Field(default=False, description="the module has none")

    def conflicts(self) -> Problems:
        """The library demands edge weights where it does not normalise, and only there."""
        if self.normalize == self.uses_edge_weight:
            must = "must be true where normalize is false"
            return [
                (("edge_weight",), "must be false beside normalize" if self.normalize else must)
            ]
        return []

    def earlier(self) -> list[tuple[Place, int]]:
        """The initial representation is another layer's output."""
        own: list[tuple[Place, int]] = [(("x_0",), self.x_0)] if isinstance(self.x_0, int) else []
        return [*super().earlier(), *own]


class PygPna(Layer):
    """Several aggregators at once, each scaled by functions of the degree."""

    marks = ("pre_nns.0.0.weight",)
    module = "torch_geometric.nn.PNAConv"
    conv: Literal["pna"] = Field(description="principal neighbourhood aggregation")
    aggregators: tuple[Literal["sum", "mean", "min", "max", "var", "std"], ...] = Field(
        strict=False, min_length=1, description="as the module was given them, in order"
    )
    scalers: tuple[
        Literal["identity", "amplification", "attenuation", "linear", "inverse_linear"], ...
    ] = Field(
        strict=False,
        min_length=1,
        description="as the module was given them, in order; the weights have the mean degrees",
    )
    divide_input: bool = Field(
        default=False, description="each tower reads its own part of the columns"
    )
    act: Activation | None = Field(
        default=ActivationOptions(kind="relu"),
        description="an activation between the Linears of a tower, where there are several",
    )
    bias: Literal[True] = Field(default=True, description="all its Linears have one")

    def conflicts(self) -> Problems:
        """A message has no parameters of an activation."""
        if self.act is not None and self.act.kind == "prelu":
            return [(("act",), "prelu is not supported between the Linears of a tower")]
        return []
