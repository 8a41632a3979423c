"""Attention by dot products of both ends' projections (DGL's DotGatConv).

    score_ji = W x_j . W x_i / sqrt(F),  out_i = sum over j of softmax(score)_ji W x_j

x [N, in], out [N, H*F].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.dgl_heads import DglHeads, bind_heads, both_ends
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl", module=KnownModule(bias="", x="feat", one_frame=True))
class DglDotGat(DglHeads):
    """Attention by dot products; it has no bias, and its weights do not tell the heads."""

    between_types = True
    marks = ("fc.weight",)
    module = "dgl.nn.DotGatConv"
    conv: Literal["dotgat"] = Field(description="dot-product attention")
    bias: Literal[False] = Field(default=False, description="the module has none")
    num_heads: int = Field(ge=1, description="the weights of dotgat do not show it")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """DotGatConv: keys, queries and values are one projection, scores scaled by its width."""
        bind_heads(s, self)
        h, query = both_ends(b, s, x)
        out, heads = s.size("out"), self.num_heads or 1
        if out % heads:
            s.weights.differ(s.name("fc.weight"), f"rows for {heads} heads", f"{out} rows")
        return b.pair_attend(h, query, heads, kind="dot", scale=max(1, out // heads) ** -0.5)
