"""GIN with features of edges (Hu et al., 2020), for both libraries.

    out_i = MLP((1 + eps) x_i + reduce over edges j -> i of relu(x_j + W e_ji))

x [N, in], e [E, edge], out [N, out]. Without a W edges have as many features as nodes.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import aggregate_messages
from embertide.models.convs.shared.gin_function import Gin, finish_gin
from embertide.models.convs.shared.option_texts import EDGE_DIM
from embertide.models.ends import Ends
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("dgl")
class DglGine(Gin):
    """Graph isomorphism network with features of edges, as many as nodes have."""

    between_types = True
    module = "dgl.nn.GINEConv"
    conv: Literal["gine"] = Field(
        description="(1 + eps) times the node plus relu of neighbours and edges, then a function"
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GINEConv: edges have as many features as nodes."""
        lines, width = ("both = add(s, e)", "out = relu(both)"), s.size("in")
        total = b.message(x.source, lines, width, edge_features=width)
        return finish_gin(b, s, self, x, total, "apply_func")


@convolution("pyg")
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

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """GINEConv; without ``edge_dim`` edges have as many features as nodes."""
        if self.edge_dim is None:
            lines: tuple[str, ...] = ("both = add(s, e)", "out = relu(both)")
            params: tuple[str, ...] = ()
            edge = s.size("in")
        else:
            params = s.take("lin.weight", "in", "edge"), s.take("lin.bias", "in")
            s.agree("edge", self.edge_dim)
            lines = ("moved = linear(e, p0, p1)", "both = add(s, moved)", "out = relu(both)")
            edge = s.size("edge")
        b.learn(x.source, s.size("in"))
        total = aggregate_messages(
            b, x.source, lines, s.size("in"), self.aggr, params=params, edge_features=edge
        )
        return finish_gin(b, s, self, x, total, "nn")
