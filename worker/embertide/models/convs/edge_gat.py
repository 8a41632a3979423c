"""Graph attention with features of edges in scores and values (DGL's EdgeGATConv).

    score_ji = leaky_relu(a_l . W x_j + a_r . W x_i + a_e . W_e e_ji)
    out_i = sum over j of softmax(score)_ji (W x_j + W_e e_ji)

x [N, in], e [E, edge], out [N, H*F].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.dgl_heads import ATTENTION, DglHeads
from embertide.models.convs.shared.edge_scores import attend_edges, edge_projection
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution(
    "dgl",
    module=KnownModule(
        read={
            **ATTENTION,
            "edge_feats": lambda m: m.fc_edge.in_features,
            "num_heads": lambda m: m._num_heads,
        },
        x="feat",
        features="edge_feat",
        columns="edge_feats",
        projection="fc_edge",
        after=("activation",),
    ),
)
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

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """EdgeGATConv: the projected features of the edge are scored, and added to the source."""
        if self.num_heads is not None:
            s.agree("heads", self.num_heads)
        left, right, edge = (
            s.take(name, 1, "heads", "width", heads=True)
            for name in ("attn_l", "attn_r", "attn_edge")
        )
        s.bind("columns", "heads", "width")
        s.bind("out", "columns")
        columns, heads = s.size("columns"), s.size("heads")
        names = ("fc_src", "fc_dst") if s.has("fc_src.weight") else ("fc", "fc")
        h = b.linear(x.source, s.take(f"{names[0]}.weight", "columns", "in"), columns)
        own = "in" if names[0] == names[1] else x.own
        of_target = s.take(f"{names[1]}.weight", "columns", own)
        other = h if x.within and names[0] == names[1] else b.linear(x.target, of_target, columns)
        out = attend_edges(
            b,
            s,
            h,
            (b.head_dot(h, left, heads), b.head_dot(other, right, heads)),
            (edge_projection(s, "fc_edge", self.edge_feats), edge),
            negative_slope=self.negative_slope,
            carry=True,
        )
        bias = s.take("bias", "out") if self.bias else None
        if not self.residual:
            return out if bias is None else b.affine(out, None, bias)
        weight = s.take("res_fc.weight", "out", x.own)
        return b.combine(b.linear(x.target, weight, columns, bias), out)
