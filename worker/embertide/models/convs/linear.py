"""A Linear on each node alone (torch.nn.Linear): x [N, in], out [N, out]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.ends import Ends
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl", "pyg")
class LinearLayer(Layer):
    """A Linear layer on each node alone, between convolutions, before or after them."""

    reads_edges = False
    module = "torch.nn.Linear"
    conv: Literal["linear"] = Field(description="a Linear layer, which reads no edges")
    prefix: str = Field(description="name of the Linear in the weights, such as `lin`")
    types: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="of several node types, those that pass through it; others stay as they are",
    )

    def no_edge_weights(self) -> str:
        """It reads no edges."""
        return "a linear layer reads no edges"

    def types_of(self, have: Iterable[str]) -> list[str]:
        """Those of ``types``, or all."""
        return [name for name in have if not self.types or name in self.types]

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """torch.nn.Linear."""
        weight = s.take("weight", "out", "in")
        return b.linear(
            x.source, weight, s.size("out"), s.take("bias", "out") if self.bias else None
        )
