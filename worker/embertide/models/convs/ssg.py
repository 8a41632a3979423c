"""Simple spectral graph convolution (Zhu & Koniusz, 2021).

    out = (alpha x + (1 - alpha) / K (A x + ... + A^K x)) W + b

x [N, in], out [N, out].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.pyg_powers import PygPowers, filtered
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("pyg", module=KnownModule(bias="lin.bias", weight="edge_weight"))
class PygSsg(PygPowers):
    """The mean of all powers up to K and the input itself, then one Linear."""

    module = "torch_geometric.nn.SSGConv"
    conv: Literal["ssg"] = Field(description="simple spectral graph convolution")
    alpha: float = Field(ge=0, le=1, description="share of the layer's input")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """SSGConv: alpha * x + (1 - alpha) / K * (A x + ... + A^K x)."""
        return filtered(b, s, self, x.source, (self.alpha, *[(1.0 - self.alpha) / self.K] * self.K))
