"""From the description and the weights to a program: layer by layer, all differences at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embertide.models.after import Norms, parts_after
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.hetero import Hetero
from embertide.models.description import Description
from embertide.models.ends import Ends
from embertide.models.layer import Layer
from embertide.models.leftovers import ReadLayer
from embertide.models.node_types import NodeTypes, prefix_of
from embertide.models.norm_options import GraphNormOptions
from embertide.models.parts import NormOptions
from embertide.models.prefixes import Kind, find_norms, find_prefixes, stored_norm
from embertide.models.prune import prune
from embertide.models.typed_layer import SeveralTypes, Tensors
from embertide.models.weights import Scope, Weights
from embertide.program.steps import Program, WeightsOf


def assemble(description: Description, weights: Weights, digest: str) -> Program:
    """Make the program of a model.

    Raises:
        ModelError: with everything in which the description and the weights differ.
    """
    weights.leave_aside(description.ignore)
    layers, types = description.layers, description.node_types
    prefixes = find_prefixes(layers, description.library, weights)
    norms = {kind: _norm_prefixes(kind, layers, prefixes, weights) for kind in _NORM_KINDS}
    b = ProgramBuilder(_input_widths(description, prefixes, weights))
    x, read, demanded = dict(b.inputs), list[ReadLayer](), dict[str, WeightsOf]()
    for number, layer in enumerate(layers):
        own = {kind: norms[kind].get(number, "") for kind in _NORM_KINDS}
        place = _Place(weights, types, prefixes[number], f"layer {number}, {layer.conv}", own)
        b.begin(layer.reads_edges)
        before = len(b.steps)
        x = _layer(b, place, layer, x)
        views = [step.edges for step in b.steps[before:]]
        of = {view.relation for view in views if view is not None and view.edge_weight}
        demanded |= {name: "required" for name in of if layer.demands_weights(name)}
        b.finish(x)
        width = b.widths[b.outputs[-1]]
        containers = layer.containers if isinstance(layer, Hetero) else ()
        read.append(ReadLayer(place.prefix, place.label, width, containers))
    _check_input_widths(b, weights)
    weights.check(read)
    program = Program(
        steps=tuple(b.steps),
        params=weights.params,
        widths=b.widths,
        layers=b.layer + 1,
        weights=demanded,
        inputs=b.inputs,
        results={name: x[name] for name in types.outputs or x},
        digest=digest,
        outputs=tuple(b.outputs),
    )
    return prune(program) if types.named else program


@dataclass(frozen=True)
class _Place:
    """Where a layer's parameters are: its prefix, and those of the norms after it."""

    weights: Weights
    types: NodeTypes
    prefix: str
    label: str
    norms: Norms

    def scope(self, prefix: str, width: int = 0) -> Scope:
        """The parameters below a prefix, where a layer's input has so many columns."""
        return Scope(self.weights, prefix, self.label, {"in": width} if width else {})

    def of_type(self, prefix: str, node_type: str) -> str:
        """Where the module of a node type is."""
        return prefix_of(prefix, node_type, list(self.weights.found))

    def norms_of(self, node_type: str) -> Norms:
        """The norms of a node type."""
        return {
            kind: stored_norm(self.of_type(prefix, node_type), self.weights.found)
            for kind, prefix in self.norms.items()
        }


def _layer(b: ProgramBuilder, place: _Place, layer: Layer, x: Tensors) -> Tensors:
    """The convolution and what follows it; returns the layer's output of each node type."""
    if not isinstance(layer, SeveralTypes):
        passing = layer.types_of(x)
        return {**x, **{name: _of_one_type(b, place, layer, name, x[name]) for name in passing}}
    scope, made = place.scope(place.prefix), {}
    for name, h in layer.steps_by_type(b, scope, x, place.types).items():
        with b.of_type(name):
            norms = place.norms_of(name)
            made[name] = parts_after(b, scope, layer, h, norms, x.get(name, ""))
    return made


def _of_one_type(b: ProgramBuilder, place: _Place, layer: Layer, node_type: str, x: str) -> str:
    """A layer that reads nodes of one type, and what follows it."""
    scope = place.scope(place.of_type(place.prefix, node_type), b.widths[x])
    with b.of_type(node_type):
        h = layer.steps(b, scope, Ends(x, x))
        b.learn(x, scope.size("in"))
        return parts_after(b, scope, layer, h, place.norms_of(node_type), x)


def _input_widths(
    description: Description, prefixes: list[str], weights: Weights
) -> Mapping[str, int]:
    """Node type -> columns of its features: as given, or what the first parameters say, else 0.

    Steps need the width of what they read, so layers are built once to learn it.
    """
    types, given = description.node_types, description.input_width or {}
    widths = {"": given} if isinstance(given, int) else {t: given.get(t, 0) for t in types.inputs}
    b, look = ProgramBuilder(widths), Weights(weights.found, weights.source)
    x = dict(b.inputs)
    for prefix, layer in zip(prefixes, description.layers, strict=True):
        if all(b.widths[name] for name in b.inputs.values()):
            break
        b.begin(layer.reads_edges)
        made = _layer(b, _Place(look, types, prefix, "", dict.fromkeys(_NORM_KINDS, "")), layer, x)
        # A layer that keeps the width may leave it to the next one to tell.
        x = x if layer.keeps_width else made
        b.finish(x)
    return {name: b.widths[tensor] for name, tensor in b.inputs.items()}


def _check_input_widths(b: ProgramBuilder, weights: Weights) -> None:
    """Note the features whose columns nothing tells, though a step reads them."""
    read = {name for step in b.steps for name in step.reads()}
    for node_type, name in b.inputs.items():
        if not b.widths[name] and (name in read or not node_type):
            field = f"input_width.{node_type}" if node_type else "input_width"
            weights.differ(field, "a number, as no weights of the first layers tell it", "missing")


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
