"""Attention whose scores depend on both ends (Brody et al., 2022, eq. 7), for both libraries.

    score_ji = a . leaky_relu(W_l x_j + W_r x_i),  out_i = sum over j of softmax(score)_ji W_l x_j

Each of H heads has its own part of the H*F columns: x [N, in], out [N, H*F], or [N, F] averaged.
With features of edges (PyG) W_e e_ji is added before the leaky_relu.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from embertide.kernels.edge_features import LoopFill
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.dgl_heads import ATTENTION, DglHeads, bind_heads, residual
from embertide.models.convs.shared.edge_scores import edge_projection
from embertide.models.convs.shared.option_texts import SLOPE
from embertide.models.convs.shared.pyg_heads import (
    EDGE_READING,
    PygHeads,
    finish_heads,
    projection,
    self_loops,
)
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.registry import convolution
from embertide.models.weights import Scope
from embertide.program.steps import Loops


@convolution(
    "dgl", module=KnownModule(bias="fc_src.bias", read=ATTENTION, x="feat", after=("activation",))
)
class DglGatv2(DglHeads):
    """Graph attention whose scores depend on both ends."""

    between_types = True
    marks = ("attn", "fc_src.weight")
    module = "dgl.nn.GATv2Conv"
    conv: Literal["gatv2"] = Field(description="graph attention of the second kind")
    negative_slope: float = Field(default=0.2, description=SLOPE)
    residual: bool = Field(default=False, description="adds the layer's input (res_fc)")
    share_weights: bool = Field(default=False, description="fc_src and fc_dst are one module")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GATv2Conv: fc_src gives keys and values, fc_dst queries, with the only biases."""
        bind_heads(s, self)
        vector = s.take("attn", 1, "heads", "width", heads=True)
        s.bind("out", "heads", "width")
        name = s.shared("fc_src", "fc_dst") if self.share_weights else "fc_src"
        key = _linear(b, s, x.source, name, self.bias)
        if self.share_weights:
            query = key if x.within else _linear(b, s, x.target, name, self.bias)
        else:
            query = _linear(b, s, x.target, "fc_dst", self.bias, x.own)
        out = b.pair_attend(
            key,
            query,
            s.size("heads"),
            kind="gatv2",
            vector=vector,
            negative_slope=self.negative_slope,
        )
        if not self.residual:
            return out
        projected = s.size(x.own) != s.size("out")
        inner = "res_fc.bias" if projected and self.bias else None
        return residual(b, s, x, out, projected=projected, inner=inner)


def _linear(b: ProgramBuilder, s: Scope, x: str, name: str, bias: bool, columns: str = "in") -> str:
    weight = s.take(f"{name}.weight", "out", columns)
    return b.linear(x, weight, s.size("out"), s.take(f"{name}.bias", "out") if bias else None)


@convolution("pyg", module=replace(EDGE_READING, bias="lin_l.bias"))
class PygGatv2(PygHeads):
    """Graph attention whose scores depend on both ends."""

    between_types = True
    marks = ("att", "lin_l.weight")
    module = "torch_geometric.nn.GATv2Conv"
    conv: Literal["gatv2"] = Field(description="graph attention of the second kind")
    share_weights: bool = Field(default=False, description="lin_l and lin_r are one module")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GATv2Conv: lin_l gives keys and values, lin_r queries."""
        if self.heads is not None:
            s.agree("heads", self.heads)
        vector = s.take("att", 1, "heads", "width", heads=True)
        s.bind("columns", "heads", "width")
        name = s.shared("lin_l", "lin_r") if self.share_weights else "lin_l"
        key = projection(b, s, x.source, name, self.bias)
        if self.share_weights:
            query = key if x.within else projection(b, s, x.target, name, self.bias)
        else:
            query = projection(b, s, x.target, "lin_r", self.bias, x.own)
        slope, loops, heads = self.negative_slope, self_loops(self.add_self_loops), s.size("heads")
        if self.edge_dim is None:
            out = b.pair_attend(
                key, query, heads, kind="gatv2", vector=vector, negative_slope=slope, loops=loops
            )
        else:
            params = edge_projection(s, "lin_edge", self.edge_dim), vector
            out = _attend_pairs(
                b, s, key, query, params, negative_slope=slope, loops=loops, fill=self.fill_value
            )
        return finish_heads(b, s, self, x, out)


def _attend_pairs(
    b: ProgramBuilder,
    s: Scope,
    key: str,
    query: str,
    params: tuple[str, str],
    *,
    negative_slope: float,
    loops: Loops,
    fill: LoopFill,
) -> str:
    """GATv2's attention, whose score reads the projected features of the edge with both ends."""
    lines = (
        "moved = linear(e, p0)",
        "ends = add(s, t)",
        "three = add(ends, moved)",
        f"lit = leaky_relu(three, {negative_slope})",
        f"apart = reshape(lit, [{s.size('heads')}, -1])",
        "parts = mul(apart, p1)",
        "score = sum(parts, 2)",
        "out = same(s)",
    )
    return b.message(
        key,
        lines,
        s.size("columns"),
        reduce="softmax",
        target=query,
        params=params,
        loops=loops,
        edge_features=s.size("edge"),
        loop_features=fill,
    )
