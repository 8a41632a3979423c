"""Graph attention (Velickovic et al., 2018, eq. 1 to 6), for both libraries.

    score_ji = leaky_relu(a_s . W x_j + a_t . W x_i),  out_i = sum over j of softmax(score)_ji W x_j

Each of H heads has its own part of the H*F columns: x [N, in], out [N, H*F], or [N, F] averaged.
With features of edges (PyG) a score has a third part, a_e . W_e e_ji.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.dgl_heads import (
    ATTENTION,
    DglHeads,
    bind_heads,
    both_ends,
    residual,
)
from embertide.models.convs.shared.edge_scores import attend_edges, edge_projection
from embertide.models.convs.shared.option_texts import SLOPE
from embertide.models.convs.shared.pyg_heads import EDGE_READING, PygHeads, finish_heads, self_loops
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.registry import convolution
from embertide.models.weights import Scope


def _attention_bias(m: Any) -> bool:
    """Where there is a projected residual, it has the bias."""
    return m.bias is not None or getattr(m.res_fc, "bias", None) is not None


@convolution(
    "dgl",
    module=KnownModule(
        bias="",
        read={**ATTENTION, "bias": _attention_bias},
        x="feat",
        weight="edge_weight",
        after=("activation",),
    ),
)
class DglGat(DglHeads):
    """Graph attention."""

    between_types = True
    weighted = False
    marks = ("attn_l", "attn_r")
    module = "dgl.nn.GATConv"
    conv: Literal["gat"] = Field(description="graph attention")
    negative_slope: float = Field(default=0.2, description=SLOPE)
    residual: bool = Field(default=False, description="adds the layer's input (res_fc)")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GATConv: attn_l scores the source, attn_r the target, both on the shared projection."""
        bind_heads(s, self)
        left = s.take("attn_l", 1, "heads", "width", heads=True)
        right = s.take("attn_r", 1, "heads", "width", heads=True)
        s.bind("out", "heads", "width")
        h, other = both_ends(b, s, x)
        heads = s.size("heads")
        out = b.attend(
            h,
            b.head_dot(h, left, heads),
            b.head_dot(other, right, heads),
            heads,
            negative_slope=self.negative_slope,
            edge_weight=self.uses_edge_weight,
        )
        projected = self.residual and s.size(x.own) != s.size("out")
        # A projected residual carries the bias; until DGL 1.0 the layer had it in any case.
        inner = projected and self.bias and not s.has("bias")
        bias = s.take("bias", "out") if self.bias and not inner else None
        if self.residual:
            return residual(
                b, s, x, out, projected=projected, inner="res_fc.bias" if inner else None, bias=bias
            )
        return out if bias is None else b.affine(out, None, bias)


@convolution("pyg", module=EDGE_READING)
class PygGat(PygHeads):
    """Graph attention."""

    between_types = True
    marks = ("att_src", "att_dst")
    module = "torch_geometric.nn.GATConv"
    conv: Literal["gat"] = Field(description="graph attention")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GATConv: one projection for both ends, or one for each where it was made for a pair.

        Versions before 2.5 store one shared projection as lin_src (and lin_dst).
        """
        if self.heads is not None:
            s.agree("heads", self.heads)
        source = s.take("att_src", 1, "heads", "width", heads=True)
        target = s.take("att_dst", 1, "heads", "width", heads=True)
        s.bind("columns", "heads", "width")
        heads, columns = s.size("heads"), s.size("columns")
        weight = s.take_any(("lin.weight", "lin_src.weight"), "columns", "in")
        h = b.linear(x.source, weight, columns)
        other = h if x.within else ""
        if s.has("lin_dst.weight"):
            of_target = s.take("lin_dst.weight", "columns", x.own)
            if not (x.within and _equal(s, "lin_src.weight", "lin_dst.weight")):
                other = b.linear(x.target, of_target, columns)
        other = other or b.linear(x.target, weight, columns)
        scores = b.head_dot(h, source, heads), b.head_dot(other, target, heads)
        slope, loops = self.negative_slope, self_loops(self.add_self_loops)
        if self.edge_dim is None:
            out = b.attend(h, *scores, heads, negative_slope=slope, loops=loops)
        else:
            moved = edge_projection(s, "lin_edge", self.edge_dim)
            edge = s.take("att_edge", 1, "heads", "width", heads=True)
            out = attend_edges(
                b,
                s,
                h,
                scores,
                (moved, edge),
                negative_slope=slope,
                loops=loops,
                fill=self.fill_value,
            )
        return finish_heads(b, s, self, x, out)


def _equal(s: Scope, one: str, other: str) -> bool:
    found = s.weights.found
    first, second = found.get(s.name(one)), found.get(s.name(other))
    return first is not None and second is not None and torch.equal(first, second)
