"""Graph convolution (Kipf & Welling, 2017, eq. 2), for both libraries.

    out_i = sum over edges j -> i of w_ji * x_j W / sqrt(d_j d_i) + b,    x [N, in], out [N, out]

DGL takes the graph as it is and counts degrees without edge weights; PyG makes sure of one
self-loop for each node and sums edge weights over in-edges at both ends. The product comes before
the sum where it makes rows narrower.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import DGL_NORMS, gcn_hop
from embertide.models.convs.shared.option_texts import LOOPS
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer, Problems
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution(
    "dgl",
    module=KnownModule(
        read={"weight": lambda m: m.weight is not None},
        after=("_activation",),
        matrix="weight",
        x="feat",
        weight="edge_weight",
    ),
)
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

    def demands_weights(self, relation: str) -> bool:
        """EdgeWeightNorm was given some."""
        return self.edge_weight_norm is not None or super().demands_weights(relation)

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GraphConv: its weight is stored [in, out]; the bias comes after both normalisations.

        It reads the sources alone.
        """
        weight = s.take("weight", "in", "out", turned=True) if self.weight else None
        bias = s.take("bias", "out") if self.bias else None
        if weight is None:
            s.bind("out", "in")
            s.bind("in", "out")
        return _gcn_steps(b, s, self, x.source, weight, bias)


def _gcn_steps(
    b: ProgramBuilder, s: Scope, o: DglGcn, x: str, weight: str | None, bias: str | None
) -> str:
    norm, weighted = DGL_NORMS[o.norm], o.uses_edge_weight
    if o.edge_weight_norm is not None:
        norm = "both_weighted" if o.edge_weight_norm == "both" else "in_weighted"
    if weight is not None and s.size("out") > s.size("in"):
        total = b.aggregate(x, norm=norm, edge_weight=weighted)
        return b.linear(total, weight, s.size("out"), bias)
    h = x if weight is None else b.linear(x, weight, s.size("out"))
    total = b.aggregate(h, norm=norm, edge_weight=weighted)
    return total if bias is None else b.affine(total, None, bias)


@convolution("pyg", module=KnownModule(weight="edge_weight"))
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

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GCNConv; a new self-loop of an ``improved`` one weighs 2 in a weighted graph."""
        weight = s.take("lin.weight", "out", "in")
        bias = s.take("bias", "out") if self.bias else None
        hop = gcn_hop(
            normalize=self.normalize,
            loops=self.normalize if self.add_self_loops is None else self.add_self_loops,
            loop_weight=2.0 if self.improved else 1.0,
            edge_weight=self.uses_edge_weight,
        )
        if s.size("out") > s.size("in"):
            return b.linear(hop.once(b, x.source), weight, s.size("out"), bias)
        total = hop.once(b, b.linear(x.source, weight, s.size("out")))
        return total if bias is None else b.affine(total, None, bias)
