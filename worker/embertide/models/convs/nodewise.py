"""Layers that read no edges: a Linear on each node, and JumpingKnowledge over earlier layers."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.models.options.layer import JumpingKnowledge, LinearLayer
from embertide.models.weights import Scope


def linear(b: ProgramBuilder, s: Scope, o: LinearLayer, x: str) -> str:
    """torch.nn.Linear."""
    weight = s.take("weight", "out", "in")
    return b.linear(x, weight, s.size("out"), s.take("bias", "out") if o.bias else None)


def jumping_knowledge(b: ProgramBuilder, s: Scope, o: JumpingKnowledge, _x: str) -> str:
    """Xu et al., section 4.1: the layers' outputs side by side, or the largest of each element."""
    parts = tuple(made[b.node_type] for made in b.convolved)
    if o.layers is not None:
        parts = tuple(map(b.output_of, o.layers))
    if o.mode == "cat":
        return b.concat(parts)
    widths = [b.widths[name] for name in parts]
    if all(widths) and len(set(widths)) > 1:
        found = ", ".join(map(str, widths))
        s.weights.differ("(max)", f"layers of equal widths  ({s.label})", found)
    return b.maximum(parts)
