"""Heterogeneous graph attention (Wang et al., section 4): within relations, then over them."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.models.node_types import NodeTypes
from embertide.models.options.relational import PygHan
from embertide.models.weights import Scope

Tensors = dict[str, str]


def pyg_han(b: ProgramBuilder, s: Scope, o: PygHan, x: Tensors, types: NodeTypes) -> Tensors:
    """HANConv: additive attention and relu for each relation, then shares for all nodes alike."""
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
                negative_slope=o.negative_slope,
            )
            parts.setdefault(relation.destination, []).append(b.activation(h, "relu"))
    weight, bias = s.take("k_lin.weight", "out", "out"), s.take("k_lin.bias", "out")
    vector = s.take("q", 1, "out")
    found = {}
    for name, made in parts.items():
        with b.of_type(name):
            alone = len(made) == 1
            found[name] = made[0] if alone else b.semantic_attend(tuple(made), weight, vector, bias)
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
