"""Layers that read no edges: a Linear on each node."""

from __future__ import annotations

from embertide.models.builder import ProgramBuilder
from embertide.models.options.layer import LinearLayer
from embertide.models.weights import Scope


def linear(b: ProgramBuilder, s: Scope, o: LinearLayer, x: str) -> str:
    """torch.nn.Linear."""
    weight = s.take("weight", "out", "in")
    return b.linear(x, weight, s.size("out"), s.take("bias", "out") if o.bias else None)
