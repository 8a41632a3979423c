"""From the description and the weights to a program: layer by layer, all differences at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embertide.models import after
from embertide.models.builder import INPUT, PlanBuilder
from embertide.models.convs import dgl, pyg
from embertide.models.description import Description
from embertide.models.options import (
    DglDotGat,
    DglGat,
    DglGatv2,
    DglGcn,
    DglGin,
    DglHeads,
    DglSage,
    Layer,
    NormOptions,
    PygGat,
    PygGatv2,
    PygGcn,
    PygGin,
    PygSage,
)
from embertide.models.prefixes import Kind, find_norms, find_prefixes
from embertide.models.program import Program
from embertide.models.weights import Scope, Weights

_CONVS: dict[type[Layer], Callable[[PlanBuilder, Scope, Any, str], str]] = {
    DglGcn: dgl.gcn,
    DglSage: dgl.sage,
    DglGat: dgl.gat,
    DglGatv2: dgl.gatv2,
    DglGin: dgl.dgl_gin,
    DglDotGat: dgl.dotgat,
    PygGcn: pyg.gcn,
    PygSage: pyg.sage,
    PygGat: pyg.gat,
    PygGatv2: pyg.gatv2,
    PygGin: pyg.pyg_gin,
}


def assemble(description: Description, weights: Weights, digest: str) -> Program:
    """Make the program; raises ModelError with everything in which the two sides differ."""
    weights.leave_aside(description.ignore)
    layers = description.layers
    prefixes = find_prefixes(layers, description.library, weights)
    norms = {kind: _norm_prefixes(kind, layers, prefixes, weights) for kind in _NORM_KINDS}
    width = description.input_width or _input_width(layers[0], prefixes[0], weights)
    builder, outputs, x = PlanBuilder(width), list[str](), INPUT
    for number, layer in enumerate(layers):
        builder.layer = number
        sizes = {"in": builder.widths[x]} if builder.widths[x] else {}
        label = f"layer {number}, {layer.conv}"
        scope = Scope(weights, prefixes[number], label, sizes)
        places = {kind: norms[kind].get(number, "") for kind in _NORM_KINDS}
        x = _layer(builder, scope, layer, x, outputs, places)
        outputs.append(x)
    if not width:
        weights.differ("input_width", "a number, as no weights of layer 0 tell it", "missing")
    weights.check()
    return Program(
        steps=tuple(builder.steps),
        params=weights.params,
        widths=builder.widths,
        layers=len(layers),
        input=INPUT,
        output=x,
        digest=digest,
    )


def _input_width(layer: Layer, prefix: str, weights: Weights) -> int:
    """Columns of the features: what the first layer's parameters say, 0 where they do not.

    Steps need the width of what they read, so the layer is built once to learn it.
    """
    look = Scope(Weights(weights.found, weights.source), prefix, "", {})
    _CONVS[type(layer)](PlanBuilder(0), look, layer, INPUT)
    return look.size("in")


_NORM_KINDS: tuple[Kind, ...] = ("batch_norm", "layer_norm")


def _norm_prefixes(
    kind: Kind, layers: tuple[Layer, ...], convs: list[str], weights: Weights
) -> dict[int, str]:
    """The prefix of every norm of this kind, by layer; norms without parameters need none."""
    given: dict[int, str] = {}
    wanted: list[int] = []
    for number, layer in enumerate(layers):
        options: NormOptions | None = getattr(layer, kind)
        if options is None:
            continue
        if options.prefix is not None:
            given[number] = options.prefix
        elif options.affine or kind == "batch_norm":
            wanted.append(number)
    if not wanted:
        return given
    return given | find_norms(kind, wanted, convs, weights, set(given.values()))


def _layer(
    b: PlanBuilder,
    s: Scope,
    layer: Layer,
    x: str,
    outputs: list[str],
    norms: dict[Kind, str],
) -> str:
    """The convolution and what follows it; returns the layer's output."""
    h = _CONVS[type(layer)](b, s, layer, x)
    for part in layer.order or layer.parts_given():
        if part == "average" and isinstance(layer, DglHeads):
            h = b.head_mean(h, layer.num_heads or s.size("heads"))
        elif part == "batch_norm" and layer.batch_norm is not None:
            h = after.batch_norm(b, s.at(norms[part]), layer.batch_norm, h)
        elif part == "layer_norm" and layer.layer_norm is not None:
            h = after.layer_norm(b, s.at(norms[part]), layer.layer_norm, h)
        elif part == "activation" and layer.activation is not None:
            h = after.activation(b, s, layer.activation, h)
        elif part == "skip" and layer.skip is not None:
            h = after.skip(b, s, layer.skip, h, x, outputs)
    return h
