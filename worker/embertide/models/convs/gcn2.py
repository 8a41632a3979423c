"""GCNII (Chen et al., 2020, eq. 5), for both libraries: initial residual and identity mapping.

    p = (1 - alpha) A x + alpha x0,  out = (1 - beta) p + beta p W,  beta = log(theta / layer + 1)

x, x0 and out [N, in].
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.gcnii import gcnii_steps
from embertide.models.convs.shared.hops import dgl_hop, gcn_hop
from embertide.models.convs.shared.option_texts import LOOPS, NORMALIZE
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Earlier, Layer, Place, Problems
from embertide.models.registry import convolution
from embertide.models.weights import Scope


def _theta(m: Any) -> float | None:
    """With layer=1, what makes the module's own share of the weights."""
    return None if m.beta == 1.0 else math.exp(m.beta) - 1.0


@convolution(
    "dgl",
    module=KnownModule(
        # With layer=1, what makes the module's own share of the weights.
        read={"layer": lambda _m: 1, "lambda_": lambda m: math.exp(m.beta) - 1.0},
        earlier="feat_0",
        after=("_activation",),
        x="feat",
        weight="edge_weight",
    ),
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

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GCN2Conv."""
        total = dgl_hop(self.uses_edge_weight).once(b, x.source)
        beta = math.log(self.lambda_ / self.layer + 1.0)
        out = gcnii_steps(b, s, total, b.output_of(self.feat_0), alpha=self.alpha, beta=beta)
        return b.affine(out, None, s.take("bias", "in")) if self.bias else out


@convolution(
    "pyg",
    module=KnownModule(
        bias="",
        read={"theta": _theta, "layer": lambda m: None if m.beta == 1.0 else 1},
        weight="edge_weight",
        earlier="x_0",
    ),
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
    normalize: bool = Field(default=True, description=NORMALIZE)
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

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GCN2Conv."""
        beta = 1.0
        if self.theta is not None and self.layer is not None:
            beta = math.log(self.theta / self.layer + 1.0)
        loops = self.normalize and self.add_self_loops
        hop = gcn_hop(normalize=self.normalize, loops=loops, edge_weight=self.uses_edge_weight)
        return gcnii_steps(
            b, s, hop.once(b, x.source), b.output_of(self.x_0), alpha=self.alpha, beta=beta
        )
