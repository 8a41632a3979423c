"""The node and its neighbours, each through its own Linear (Morris et al., 2019).

    out_i = W_1 x_i + W_2 reduce over edges j -> i of w_ji x_j + b

x [N, in], out [N, out].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import LINEAR, aggregate, aggregates_otherwise
from embertide.models.convs.shared.option_texts import AGGR, REFUSED_AGGR
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution(
    "pyg",
    module=KnownModule(bias="lin_rel.bias", weight="edge_weight", by_messages=aggregates_otherwise),
)
class PygGraph(Layer):
    """The node and its neighbours, each through its own Linear; no self-loops, no degrees."""

    between_types = True
    target_optional = True
    weighted = True
    marks = ("lin_rel.weight",)
    refused = REFUSED_AGGR
    module = "torch_geometric.nn.GraphConv"
    conv: Literal["graph"] = Field(description="higher-order graph convolution")
    aggr: Literal["add", "sum", "mean", "max", "min", "var", "std"] = Field(
        default="add", description=AGGR
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GraphConv: lin_rel holds the bias, which every node gets, with neighbours or without."""
        weight = s.take("lin_rel.weight", "out", "in")
        bias = s.take("lin_rel.bias", "out") if self.bias else None
        out, weighted = s.size("out"), self.uses_edge_weight
        if self.aggr in LINEAR and out <= s.size("in"):
            total = aggregate(b, b.linear(x.source, weight, out), self.aggr, edge_weight=weighted)
        else:
            total = b.linear(aggregate(b, x.source, self.aggr, edge_weight=weighted), weight, out)
        if not x.target:
            s.pass_over("lin_root.weight")
            return total if bias is None else b.affine(total, None, bias)
        root = s.take("lin_root.weight", "out", x.own)
        return b.combine(b.linear(x.target, root, out, bias), total)
