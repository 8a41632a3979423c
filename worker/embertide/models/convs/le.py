"""Differences to the neighbours (Ranjan et al., 2020: ASAP's local extrema).

    out_i = W_3 x_i + sum over edges j -> i of w_ji (W_1 x_j - W_2 x_i)

x [N, in], out [N, out].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.degrees import scale_by_degree
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("pyg", module=KnownModule(bias="lin1.bias", weight="edge_weight"))
class PygLe(Layer):
    """Differences to the neighbours, each through its own Linear (ASAP's local extrema)."""

    between_types = True
    weighted = True
    marks = ("lin3.weight",)
    module = "torch_geometric.nn.LEConv"
    conv: Literal["le"] = Field(description="local extremum convolution")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """LEConv: the sum over in-edges of w * (lin1(x_j) - lin2(x_i)), plus lin3(x_i)."""
        out = {"lin1": x.source, "lin2": x.target, "lin3": x.target}
        for name, end in out.items():
            weight = s.take(f"{name}.weight", "out", "in" if name == "lin1" else x.own)
            bias = s.take(f"{name}.bias", "out") if self.bias and name != "lin2" else None
            out[name] = b.linear(end, weight, s.size("out"), bias)
        weighted = self.uses_edge_weight
        total = b.aggregate(out["lin1"], edge_weight=weighted)
        own = scale_by_degree(b, out["lin2"], "degree", edge_weight=weighted)
        return b.combine(out["lin3"], b.combine(total, own, beta=-1.0))
