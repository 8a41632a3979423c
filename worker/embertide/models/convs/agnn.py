"""Attention by the cosine of both ends (Thekumparampil et al., 2018, eq. 5), for both libraries.

    out_i = sum over edges j -> i of softmax(beta cos(x_j, x_i)) x_j

x and out [N, in].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.cosine import cosine_attention
from embertide.models.convs.shared.option_texts import LOOPS
from embertide.models.convs.shared.pyg_heads import self_loops
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl", module=KnownModule(bias="", x="feat"))
class DglAgnn(Layer):
    """Attention by the cosine of both ends."""

    keeps_width = True
    marks = ("beta",)
    module = "dgl.nn.AGNNConv"
    conv: Literal["agnn"] = Field(description="attention by cosine")
    bias: Literal[False] = Field(default=False, description="the module has none")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """AGNNConv: the graph's own self-loops only."""
        return cosine_attention(b, s, x.source, loops="keep")


@convolution("pyg", module=KnownModule(bias=""))
class PygAgnn(Layer):
    """Attention by the cosine of both ends."""

    keeps_width = True
    marks = ("beta",)
    module = "torch_geometric.nn.AGNNConv"
    conv: Literal["agnn"] = Field(description="attention by cosine")
    add_self_loops: bool = Field(default=True, description=LOOPS)
    bias: Literal[False] = Field(default=False, description="the module has none")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """AGNNConv."""
        return cosine_attention(b, s, x.source, loops=self_loops(self.add_self_loops))
