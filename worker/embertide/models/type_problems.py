"""Which layers of a description do not fit its node types and relations."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.models.convs.linear import LinearLayer
from embertide.models.layer import Layer, Problems
from embertide.models.node_types import NodeTypes
from embertide.models.typed_layer import SeveralTypes


def check_types(
    layers: tuple[Layer, ...], types: NodeTypes, input_width: int | Mapping[str, int] | None
) -> Problems:
    """What layers say of node types that the others do not bear out."""
    if not types.named:
        return _of_one_type(layers, types, input_width)
    problems = _unknown_types(types, input_width)
    have = set(types.inputs)
    for number, layer in enumerate(layers):
        problems += [(("layers", number, *place), why) for place, why in _layer(layer, types, have)]
        if isinstance(layer, SeveralTypes):
            have = layer.makes(types.relations, have)
    missing = [name for name in types.outputs if name in types.names and name not in have]
    problems += [
        (("outputs",), f"has {name!r}, but the last layer makes no tensor of it")
        for name in missing
    ]
    return problems


def _of_one_type(
    layers: tuple[Layer, ...], types: NodeTypes, input_width: int | Mapping[str, int] | None
) -> Problems:
    """Fields that need relations."""
    needs = "is of models with several node types or relations, and there are no relations"
    problems: Problems = [
        ((name,), needs)
        for name, value in (
            ("types", types.given),
            ("features", types.features),
            ("outputs", types.outputs),
        )
        if value
    ]
    if isinstance(input_width, Mapping):
        problems.append((("input_width",), "must be one number: the model names no node types"))
    for number, layer in enumerate(layers):
        if isinstance(layer, SeveralTypes):
            problems.append((("relations",), f"is required by layers[{number}] ({layer.conv})"))
        elif isinstance(layer, LinearLayer) and layer.types:
            problems.append((("layers", number, "types"), needs))
    return problems


def _unknown_types(types: NodeTypes, input_width: int | Mapping[str, int] | None) -> Problems:
    """Names that are no node type."""
    known = types.names
    problems: Problems = []
    for one in types.relations:
        lacking = [name for name in (one.source, one.destination) if name not in known]
        problems += [(("types",), f"lacks {name!r}, a node type of {one}") for name in lacking]
    fields: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("features", types.features or ()),
        ("outputs", types.outputs),
        ("input_width", tuple(input_width) if isinstance(input_width, Mapping) else ()),
    )
    for field, names in fields:
        problems += [
            ((field,), f"has {name!r}, which is no node type of {', '.join(known)}")
            for name in names
            if name not in known
        ]
    if isinstance(input_width, int):
        problems.append((("input_width",), "must be a mapping: node type -> columns"))
    return problems


def _layer(layer: Layer, types: NodeTypes, have: set[str]) -> Problems:
    """A layer of a model that names its node types."""
    problems: Problems = [
        (
            (kind, "prefix"),
            "is required in a model of several node types: where the norms of all types are,"
            f" such as norms.0 for norms.0.{types.names[0]}",
        )
        for kind in ("batch_norm", "layer_norm", "graph_norm")
        if (norm := getattr(layer, kind)) is not None
        and norm.prefix is None
        and (norm.stores or kind == "batch_norm")
    ]
    if isinstance(layer, SeveralTypes):
        return [*problems, *layer.misfits(types.relations), *_reads(layer, types, have)]
    if layer.reads_edges:
        problems.append(
            (
                ("conv",),
                f"{layer.conv} is of one relation; in a model of several node types or relations"
                f" it stands in {{conv: hetero, each: {{conv: {layer.conv}}}}}",
            )
        )
    for name in layer.types if isinstance(layer, LinearLayer) else ():
        if name not in have:
            problems.append((("types",), f"has {name!r}, of which there is no tensor here"))
    return problems


def _reads(layer: SeveralTypes, types: NodeTypes, have: set[str]) -> Problems:
    """Relations that need tensors of types that the layer before it made none of."""
    return [
        (
            (),
            f"reads node type {name!r} for {relation}, but there is no tensor of it here: it has no"
            " features, or no relation of the layer before leads to it",
        )
        for relation in layer.over(types.relations)
        if relation in types.relations
        for name in layer.wants(relation)
        if name not in have
    ]
