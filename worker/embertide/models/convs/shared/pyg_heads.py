"""What PyG's attentions have in common: options, projections, and what follows the sum."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.option_texts import EDGE_DIM, LOOPS, SLOPE
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer, Problems
from embertide.models.weights import Scope
from embertide.program.steps import Loops


class PygHeads(Layer):
    """What PyG's two kinds of graph attention have in common."""

    heads: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    concat: bool = Field(default=True, description="heads side by side; false averages them")
    negative_slope: float = Field(default=0.2, description=SLOPE)
    add_self_loops: bool = Field(default=True, description=LOOPS)
    residual: bool = Field(default=False, description="adds the layer's input through `res`")
    edge_dim: int | None = Field(default=None, ge=1, description=f"{EDGE_DIM}, through `lin_edge`")
    fill_value: Literal["mean", "add", "min", "max", "mul"] | float = Field(
        default="mean",
        description="features of a new self-loop: a number for all, or what those of the node's"
        " in-edges come to",
    )

    def conflicts(self) -> Problems:
        """Without features nothing is filled in."""
        if "fill_value" in self.model_fields_set and self.edge_dim is None:
            return [(("fill_value",), "is for layers with edge_dim; remove it")]
        return []


EDGE_READING = KnownModule(
    read={"edge_dim": lambda m: m.lin_edge.weight.shape[1]},
    features="edge_attr",
    columns="edge_dim",
    projection="lin_edge",
    of_features=frozenset({"edge_dim", "fill_value"}),
)
"""How a live attention is read that may read features of edges."""


def self_loops(add: bool) -> Loops:
    """The self-loops of a step by PyG's ``add_self_loops``."""
    return "single" if add else "keep"


def projection(
    b: ProgramBuilder, s: Scope, x: str, name: str, bias: bool, columns: str = "in"
) -> str:
    """A Linear on one end, ``columns`` wide."""
    weight = s.take(f"{name}.weight", "columns", columns)
    shift = s.take(f"{name}.bias", "columns") if bias else None
    return b.linear(x, weight, s.size("columns"), shift)


def finish_heads(b: ProgramBuilder, s: Scope, o: PygHeads, x: Ends, out: str) -> str:
    """Join or average the heads, then add the residual (always projected) and the bias."""
    if o.concat:
        s.bind("out", "columns")
    else:
        s.bind("out", "width")
        out = b.head_mean(out, s.size("heads"))
    bias = s.take("bias", "out") if o.bias else None
    if o.residual:
        weight = s.take("res.weight", "out", x.own)
        return b.combine(b.linear(x.target, weight, s.size("out"), bias), out)
    return out if bias is None else b.affine(out, None, bias)
