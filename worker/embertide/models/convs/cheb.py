"""Chebyshev filters (Defferrard et al., 2016, eq. 4), for both libraries.

    out = sum over k of T_k(2 L / lambda_max - I) x W_k + b for the Laplacian L

x [N, in], out [N, out]. No self-loops are added, and PyG's are left out.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import Hop, dgl_hop
from embertide.models.convs.shared.polynomial import chebyshev, laplacian
from embertide.models.convs.shared.split_linear import count_linears, split_linear
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope
from embertide.program.steps import Norm


@convolution(
    "dgl",
    module=KnownModule(
        bias="linear.bias",
        x="feat",
        call_options={
            "lambda_max": "without it, the largest eigenvalue is computed from the whole graph, and"
            " another one for each: give it that of training, as lambda_max=[1.9] of what"
            " dgl.laplacian_lambda_max says, or its bound, [2.0]"
        },
        after=("activation",),
    ),
)
class DglCheb(Layer):
    """Chebyshev polynomials of the Laplacian, side by side, through one Linear.

    The module itself applies a relu unless it was made with ``activation=None``: it is
    written as any layer's, ``activation: relu``.
    """

    marks = ("linear.weight",)
    module = "dgl.nn.ChebConv"
    conv: Literal["cheb"] = Field(description="Chebyshev filter")
    k: int = Field(ge=1, description="number of polynomials")
    lambda_max: float = Field(
        default=2.0, gt=0, description="largest eigenvalue, as the forward was given it"
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """ChebConv: its Linear reads all polynomials side by side, so it is one for each."""
        weights = split_linear(s, "linear.weight", self.k, alternating=True)
        bias = s.take("linear.bias", "out") if self.bias else None
        apply = laplacian(b, self.lambda_max, partial(dgl_hop(self.uses_edge_weight).once, b))
        return chebyshev(b, x.source, weights, s.size("out"), bias, apply)


@convolution(
    "pyg",
    module=KnownModule(
        read={"K": lambda m: len(m.lins)},
        weight="edge_weight",
        call_options={"lambda_max": ""},
        by_messages=lambda m: m.normalization is None,
    ),
)
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

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """ChebConv: sums without self-loops, by degrees of the sources at both ends (``sym``)."""
        norm: Norm = "sym_out_weighted" if self.normalization == "sym" else "out_weighted"
        weights = []
        for power in range(self.K or count_linears(s)):
            name = s.take(f"lins.{power}.weight", "out", "in")
            if power % 2 and name in s.weights.params:
                s.put(name, -s.weights.params[name])
            weights.append(name)
        bias = s.take("bias", "out") if self.bias else None
        hop = Hop(norm=norm, loops="none", edge_weight=self.uses_edge_weight)
        apply = laplacian(b, self.lambda_max, partial(hop.once, b))
        return chebyshev(b, x.source, weights, s.size("out"), bias, apply)
