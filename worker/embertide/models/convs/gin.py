"""Graph isomorphism network (Xu et al., 2019, eq. 4.1), for both libraries.

    out_i = MLP((1 + eps) x_i + reduce over edges j -> i of x_j)

x [N, in], out [N, out].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import aggregate
from embertide.models.convs.shared.gin_function import GIN, Gin, finish_gin
from embertide.models.convs.shared.option_texts import AGGR, REFUSED_AGGR
from embertide.models.ends import Ends
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl")
class DglGin(Gin):
    """Graph isomorphism network."""

    between_types = True
    target_optional = True
    weighted = True
    module = "dgl.nn.GINConv"
    conv: Literal["gin"] = Field(description=GIN)
    aggregator_type: Literal["sum", "max", "mean"] = Field(
        default="sum", description="how neighbours are joined"
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GINConv; its function is stored under ``apply_func``."""
        total = aggregate(b, x.source, self.aggregator_type, edge_weight=self.uses_edge_weight)
        return finish_gin(b, s, self, x, total, "apply_func")


@convolution("pyg")
class PygGin(Gin):
    """Graph isomorphism network."""

    between_types = True
    target_optional = True
    refused = REFUSED_AGGR
    module = "torch_geometric.nn.GINConv"
    conv: Literal["gin"] = Field(description=GIN)
    aggr: Literal["add", "sum", "max", "mean", "min", "var", "std"] = Field(
        default="add", description=AGGR
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GINConv; its function is stored under ``nn``."""
        total = aggregate(b, x.source, self.aggr, edge_weight=self.uses_edge_weight)
        return finish_gin(b, s, self, x, total, "nn")
