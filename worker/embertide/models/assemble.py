"""From the description and the weights to a program: layer by layer, all differences at once."""

from __future__ import annotations

from embertide.models import after
from embertide.models.builder import INPUT, ProgramBuilder
from embertide.models.convs.kinds import CONVS
from embertide.models.description import Description
from embertide.models.leftovers import ReadLayer
from embertide.models.options import dgl as dgl_options
from embertide.models.options.graph_norm import GraphNormOptions
from embertide.models.options.layer import Layer
from embertide.models.options.parts import NormOptions
from embertide.models.prefixes import Kind, find_norms, find_prefixes, stored_norm
from embertide.models.weights import Scope, Weights
from embertide.steps import Program


def assemble(description: Description, weights: Weights, digest: str) -> Program:
    """Make the program of a model.

    Raises:
        ModelError: with everything in which the description and the weights differ.
    """
    weights.leave_aside(description.ignore)
    layers = description.layers
    prefixes = find_prefixes(layers, description.library, weights)
    norms = {kind: _norm_prefixes(kind, layers, prefixes, weights) for kind in _NORM_KINDS}
    width = description.input_width or _input_width(layers, prefixes, weights)
    b, x, read = ProgramBuilder(width), INPUT, list[ReadLayer]()
    for number, layer in enumerate(layers):
        b.begin(layer.reads_edges)
        sizes = {"in": b.widths[x]} if b.widths[x] else {}
        scope = Scope(weights, prefixes[number], f"layer {number}, {layer.conv}", sizes)
        x = _layer(b, scope, layer, x, {kind: norms[kind].get(number, "") for kind in _NORM_KINDS})
        b.finish(x)
        read.append(ReadLayer(prefix=scope.prefix, label=scope.label, width=b.widths[x]))
    if not width:
        weights.differ("input_width", "a number, as no weights of layer 0 tell it", "missing")
    weights.check(read)
    return Program(
        steps=tuple(b.steps),
        params=weights.params,
        widths=b.widths,
        layers=b.layer + 1,
        inputs={"": INPUT},
        results={"": x},
        digest=digest,
        outputs=tuple(b.outputs),
    )


def _input_width(layers: tuple[Layer, ...], prefixes: list[str], weights: Weights) -> int:
    """Columns of the features: what the first parameters say, 0 where they do not.

    Steps need the width of what they read, so layers are built once to learn it.
    """
    b = ProgramBuilder(0)
    for layer, prefix in zip(layers, prefixes, strict=True):
        look = Scope(Weights(weights.found, weights.source), prefix, "", {})
        if layer.has_parameters:
            CONVS[type(layer)](b, look, layer, INPUT)
        if look.size("in") or not layer.keeps_width:
            return look.size("in")
        b.finish(INPUT)
    return 0


_NORM_KINDS: tuple[Kind, ...] = ("batch_norm", "layer_norm", "graph_norm")


def _norm_prefixes(
    kind: Kind, layers: tuple[Layer, ...], convs: list[str], weights: Weights
) -> dict[int, str]:
    """The prefix of every norm of this kind, by layer; norms without parameters need none."""
    given: dict[int, str] = {}
    wanted: list[int] = []
    for number, layer in enumerate(layers):
        options: NormOptions | GraphNormOptions | None = getattr(layer, kind)
        if options is None:
            continue
        if options.prefix is not None:
            given[number] = stored_norm(options.prefix, weights.found)
        elif options.stores or kind == "batch_norm":
            wanted.append(number)
    if not wanted:
        return given
    used = {prefix for layer in layers for prefix in layer.part_prefixes()} | set(given.values())
    return given | find_norms(kind, wanted, convs, weights, used)


def _layer(b: ProgramBuilder, s: Scope, layer: Layer, x: str, norms: dict[Kind, str]) -> str:
    """The convolution and what follows it; returns the layer's output."""
    h = CONVS[type(layer)](b, s, layer, x)
    for part in layer.order or layer.parts_given():
        if part == "average" and isinstance(layer, dgl_options.DglHeads):
            h = b.head_mean(h, layer.num_heads or s.size("heads"))
        elif part == "batch_norm" and layer.batch_norm is not None:
            h = after.batch_norm(b, s.at(norms[part]), layer.batch_norm, h)
        elif part == "layer_norm" and layer.layer_norm is not None:
            h = after.layer_norm(b, s.at(norms[part]), layer.layer_norm, h)
        elif part == "graph_norm" and layer.graph_norm is not None:
            h = after.graph_norm(b, s.at(norms[part]), layer.graph_norm, h)
        elif part == "activation" and layer.activation is not None:
            h = after.activation(b, s, layer.activation, h)
        elif part == "skip" and layer.skip is not None:
            h = after.skip(b, s, layer.skip, h, x)
    return h
