"""Graph filters and propagation as DGL has them: what their layers may say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.options.layer import Earlier, Layer, Place


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


class DglSg(Layer):
    """Neighbours' features k times, then one Linear."""

    weighted = False
    marks = ("fc.weight",)
    module = "dgl.nn.SGConv"
    conv: Literal["sg"] = Field(description="simple graph convolution")
    k: int = Field(default=1, ge=1, description="how often neighbours are summed")


class DglTag(Layer):
    """All powers of the normalised graph up to k, side by side, through one Linear."""

    weighted = False
    marks = ("lin.weight",)
    module = "dgl.nn.TAGConv"
    conv: Literal["tag"] = Field(description="topology adaptive convolution")
    k: int = Field(default=2, ge=1, description="how often neighbours are summed")


class DglCheb(Layer):
    """Chebyshev polynomials of the Laplacian, side by side, through one Linear.

    The module applies a relu of its own unless it was made with ``activation=None``: it is
    written as any layer's, ``activation: relu``.
    """

    marks = ("linear.weight",)
    module = "dgl.nn.ChebConv"
    conv: Literal["cheb"] = Field(description="Chebyshev filter")
    k: int = Field(ge=1, description="number of polynomials")
    lambda_max: float = Field(
        default=2.0, gt=0, description="largest eigenvalue, as the forward was given it"
    )


class DglGcn2(Layer):
    """GCNII: an initial residual and an identity mapping."""

    weighted = False
    marks = ("weight1",)
    module = "dgl.nn.GCN2Conv"
    conv: Literal["gcn2"] = Field(description="GCNII")
    feat_0: Earlier = Field(
        description="the initial representation: `input` (the features) or the number of the"
        " layer whose output it is (the first is 0)"
    )
    layer: int = Field(ge=1, description="the layer's number in training")
    alpha: float = Field(default=0.1, description="share of the initial representation")
    lambda_: float = Field(
        default=1.0, gt=0, description="the share of the weights is log(lambda_ / layer + 1)"
    )

    def earlier(self) -> list[tuple[Place, int]]:
        """The initial representation is another layer's output."""
        start = self.feat_0
        own: list[tuple[Place, int]] = [(("feat_0",), start)] if isinstance(start, int) else []
        return [*super().earlier(), *own]


class DglPna(Layer):
    """Several aggregators at once, each scaled by functions of the degree.

    Its batch norms, the mixing layer and the residual are its own.
    """

    marks = ("towers.0.M.weight",)
    module = "dgl.nn.PNAConv"
    conv: Literal["pna"] = Field(description="principal neighbourhood aggregation")
    aggregators: tuple[Literal["mean", "max", "min", "std", "var", "sum"], ...] = Field(
        strict=False,
        min_length=1,
        description="as the module was given them, in order; `moment3` to `moment5` have no step",
    )
    scalers: tuple[Literal["identity", "amplification", "attenuation"], ...] = Field(
        strict=False, min_length=1, description="as the module was given them, in order"
    )
    delta: float = Field(gt=0, description="mean of log(degree + 1) in training, as it was given")
    residual: bool = Field(
        default=True, description="adds the layer's input, where the widths are the same"
    )
    bias: Literal[True] = Field(default=True, description="all its Linears have one")


class DglAgnn(Layer):
    """Attention by the cosine of both ends."""

    keeps_width = True
    marks = ("beta",)
    module = "dgl.nn.AGNNConv"
    conv: Literal["agnn"] = Field(description="attention by cosine")
    bias: Literal[False] = Field(default=False, description="the module has none")
