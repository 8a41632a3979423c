"""A known convolution that was called, as the steps that ``model.yaml`` would give."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from torch import nn

from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.weights import Scope
from embertide.spec.problems import dotted
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse


def lower_conv(
    low: Lowering,
    node: Node,
    path: str,
    module: nn.Module,
    conv: KnownModule,
    relation: str,
    scope: Called,
    weighted: bool,
    featured: bool,
    call_options: dict[str, float],
    earlier: Node | None,
    source: Node,
    target: Node,
) -> NodeRows:
    """One layer, or with the convolutions of other relations a part of one."""
    ends = Ends(*(low.name(low.rows(node, low.values.get(end))) for end in (source, target)))
    start = "" if earlier is None else low.name(low.rows(node, low.values.get(earlier)))
    kind = type(module).__name__
    low.begin(scope)
    more: dict[str, Any] = dict(call_options)
    if earlier is not None:
        more[conv.earlier] = _place(low, node, path, start)
    try:
        options = conv.options_of(module, weighted, featured, **more)
    except ValidationError as error:
        reasons = "; ".join(f"{dotted(item['loc'])} {item['msg']}" for item in error.errors())
        raise refuse(
            node.where, f"{path} ({kind}) is not known with these options: {reasons}"
        ) from None
    sizes = {"in": low.b.widths[ends.source], ends.own: low.b.widths[ends.target]}
    stored = Scope(low.weights, path, f"{path}, {kind}", sizes)
    with low.over(relation):
        return NodeRows(options.steps(low.b, stored, ends))


def _place(low: Lowering, node: Node, path: str, name: str) -> int | str:
    """Which earlier layer's output a tensor is, as ``model.yaml`` names it."""
    if name in low.b.inputs.values():
        return "input"
    for at, results in enumerate(low.b.results):
        if name in results.values():
            return at
    raise refuse(
        node.where,
        f"{path} reads a tensor that is no earlier layer's result; give it what a convolution, or"
        " what stands before the first one, returns",
    )
