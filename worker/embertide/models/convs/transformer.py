"""Attention by dot products of keys and queries (Shi et al., 2021: UniMP).

    score_ji = (W_k x_j + W_e e_ji) . W_q x_i / sqrt(F)
    out_i = W_1 x_i + sum over j of softmax(score)_ji (W_v x_j + W_e e_ji)

x [N, in], e [E, edge], out [N, H*F], or [N, F] averaged. Its softmax goes over the graph's own
in-edges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.edge_scores import edge_projection
from embertide.models.convs.shared.option_texts import EDGE_DIM
from embertide.models.convs.shared.pyg_heads import EDGE_READING, projection
from embertide.models.ends import Ends
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope

_GATE = (
    "a = sub(x0, x1)",
    "b = cat([x0, x1, a], 1)",
    "c = linear(b, p0)",
    "d = sigmoid(c)",
    "e = mul(d, a)",
    "out = sub(x0, e)",
)
"""TransformerConv's beta: beta * x1 + (1 - beta) * x0 of what neighbours and the node give."""


@convolution("pyg", module=replace(EDGE_READING, bias="lin_key.bias"))
class PygTransformer(Layer):
    """Attention by dot products of keys and queries (UniMP)."""

    between_types = True
    marks = ("lin_key.weight",)
    module = "torch_geometric.nn.TransformerConv"
    conv: Literal["transformer"] = Field(description="transformer attention")
    heads: int = Field(
        default=1, ge=1, description="the weights do not show it where `concat` joins the heads"
    )
    concat: bool = Field(default=True, description="heads side by side; false averages them")
    root_weight: bool = Field(default=True, description="adds the node itself (lin_skip)")
    beta: bool = Field(
        default=False, description="a gate weighs the node against its neighbours (lin_beta)"
    )
    edge_dim: int | None = Field(default=None, ge=1, description=f"{EDGE_DIM}, through `lin_edge`")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """TransformerConv: its softmax goes over the graph's own in-edges."""
        key = projection(b, s, x.source, "lin_key", self.bias)
        query = projection(b, s, x.target, "lin_query", self.bias, x.own)
        value = projection(b, s, x.source, "lin_value", self.bias)
        columns = s.size("columns")
        if columns % self.heads:
            s.weights.differ(
                s.name("lin_key.weight"), f"rows for {self.heads} heads", f"{columns} rows"
            )
        width = columns // self.heads
        scale = max(1, width) ** -0.5
        if self.edge_dim is None:
            h = b.pair_attend(value, query, self.heads, kind="dot", key=key, scale=scale)
        else:
            weight = edge_projection(s, "lin_edge", self.edge_dim)
            h = _attend_dots(b, s, (key, value, query), weight, self.heads, scale)
        if not self.concat:
            h = b.head_mean(h, self.heads)
        s.agree("out", columns if self.concat else width)
        weight = s.take("lin_skip.weight", "out", x.own)
        bias = s.take("lin_skip.bias", "out") if self.bias else None
        if not self.root_weight:
            return h
        own = b.linear(x.target, weight, s.size("out"), bias)
        if not self.beta:
            return b.combine(own, h)
        gate = s.take("lin_beta.weight", 1, 3 * s.size("out") or "gate")
        return b.row_wise((h, own), _GATE, (gate,), s.size("out"))


def _attend_dots(
    b: ProgramBuilder, s: Scope, ends: tuple[str, str, str], weight: str, heads: int, scale: float
) -> str:
    """Attention by dot products; projected features of the edge are added to keys and values.

    Args:
        ends: keys and values of the sources, queries of the targets.
    """
    key, value, query = ends
    columns = s.size("columns")
    lines = (
        f"own_key = narrow(s, 1, 0, {columns})",
        f"own_value = narrow(s, 1, {columns}, {columns})",
        "moved = linear(e, p0)",
        "key = add(own_key, moved)",
        "products = mul(key, t)",
        f"apart = reshape(products, [{heads}, -1])",
        "dots = sum(apart, 2)",
        f"score = mul(dots, {scale})",
        "out = add(own_value, moved)",
    )
    return b.message(
        b.concat((key, value)),
        lines,
        columns,
        reduce="softmax",
        target=query,
        params=(weight,),
        edge_features=s.size("edge"),
    )
