"""Heterogeneous graph attention (Wang et al., 2019, section 4): within relations, then over them.

    h_ri = relu(sum over edges j -> i of r of softmax(leaky_relu(a_r . x_j + b_r . x_i)) x_j)
    out_i = sum over r of softmax_r(q . mean over i of tanh(W h_ri + b)) h_ri

x and out by node type, [N, in] and [N, H*F].
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.known_modules import KnownModule
from embertide.models.node_types import NodeTypes
from embertide.models.registry import convolution
from embertide.models.typed_layer import SeveralTypes, Tensors
from embertide.models.weights import Scope


@convolution("pyg", module=KnownModule(bias=""))
class PygHan(SeveralTypes):
    """Attention within each relation, then over the relations that lead to a type.

    The second has one share for each relation, by a mean over all nodes of the destination type.
    """

    marks = ("k_lin.weight",)
    module = "torch_geometric.nn.HANConv"
    conv: Literal["han"] = Field(description="heterogeneous graph attention")
    negative_slope: float = Field(
        default=0.2, description="negative slope of the leaky_relu on the scores"
    )
    bias: Literal[True] = Field(default=True, description="the module has them")

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """HANConv: attention and relu for each relation, then shares for all nodes alike."""
        rows = {name: _projected(b, s, name, h) for name, h in x.items()}
        parts: dict[str, list[str]] = {}
        for relation in types.relations:
            stored = "__".join((relation.source, relation.name, relation.destination))
            ends = rows[relation.source], rows[relation.destination]
            with b.over(relation):
                source, target = (
                    s.take(f"lin_{end}.{stored}", 1, "heads", "width", heads=True)
                    for end in ("src", "dst")
                )
                heads = s.size("heads")
                s.bind("out", "heads", "width")
                h = b.attend(
                    ends[0],
                    b.head_dot(ends[0], source, heads),
                    b.head_dot(ends[1], target, heads),
                    heads,
                    negative_slope=self.negative_slope,
                )
                parts.setdefault(relation.destination, []).append(b.activation(h, "relu"))
        weight, bias = s.take("k_lin.weight", "out", "out"), s.take("k_lin.bias", "out")
        vector = s.take("q", 1, "out")
        found = {}
        for name, made in parts.items():
            with b.of_type(name):
                alone = len(made) == 1
                found[name] = (
                    made[0] if alone else b.semantic_attend(tuple(made), weight, vector, bias)
                )
        return found


def _projected(b: ProgramBuilder, s: Scope, node_type: str, x: str) -> str:
    """A type's rows through its own Linear."""
    inner = Scope(s.weights, s.name(f"proj.{node_type}"), s.label, {})
    inner.expect("in", b.widths[x])
    inner.expect("out", s.size("out"))
    weight, bias = inner.take("weight", "out", "in"), inner.take("bias", "out")
    b.learn(x, inner.size("in"))
    s.expect("out", inner.size("out"))
    with b.of_type(node_type):
        return b.linear(x, weight, inner.size("out"), bias)
