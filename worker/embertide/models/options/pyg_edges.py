"""What layers trained with PyTorch Geometric say of the features of edges."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.options.layer import Gin

EDGE_DIM = "features of each edge, which the module's forward is given as edge_attr"


class PygGine(Gin):
    """Graph isomorphism network with features of edges: relu of node and edge, summed."""

    between_types = True
    target_optional = True
    module = "torch_geometric.nn.GINEConv"
    conv: Literal["gine"] = Field(
        description="(1 + eps) times the node plus relu of neighbours and edges, then a function"
    )
    aggr: Literal["add", "sum", "max", "mean", "min", "var", "std"] = Field(
        default="add", description="how neighbours are joined; `add` is `sum`"
    )
    edge_dim: int | None = Field(
        default=None,
        ge=1,
        description=f"{EDGE_DIM}, through `lin`; without it, edges have as many as nodes",
    )
