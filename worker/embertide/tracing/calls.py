"""A known convolution that was called, as the steps that ``model.yaml`` would give."""

from __future__ import annotations

from torch import nn

from embertide.models.weights import Scope
from embertide.tracing.convs import Conv
from embertide.tracing.lower import Lowering
from embertide.tracing.source import refuse
from embertide.tracing.tape import Node
from embertide.tracing.values import Rows


def lower_conv(
    low: Lowering,
    node: Node,
    path: str,
    module: nn.Module,
    conv: Conv,
    weighted: bool,
    source: Node,
    target: Node,
) -> Rows:
    """One layer."""
    names = {low.name(low.rows(node, low.values.get(one))) for one in (source, target)}
    if len(names) > 1:
        raise refuse(
            node.where,
            f"{path} is given other features for destinations than for sources; known is one"
            " tensor for both",
        )
    (x,) = names
    low.begin(path, type(module).__name__, True)
    label = f"{path}, {type(module).__name__}"
    scope = Scope(low.weights, path, label, {"in": low.b.widths[x]})
    return Rows(conv.steps(low.b, scope, conv.options(module, weighted), x))
