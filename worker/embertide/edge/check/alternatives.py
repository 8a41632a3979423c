"""Small changes of a description: its commonest mistakes, each of them undone.

Another value of one option of one layer, the parts after a convolution in another order, the
weights of two layers exchanged, a JumpingKnowledge added, and the same option changed in every
layer.
"""

from __future__ import annotations

import itertools
import json
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from embertide.models.convs.jumping_knowledge import JumpingKnowledge
from embertide.models.description import Description
from embertide.models.kinds import LAYERS
from embertide.models.layer import Layer
from embertide.models.prefixes import find_prefixes
from embertide.models.read import ModelFiles
from embertide.models.weights import Weights

_ACTIVATIONS = ("relu", "elu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a description.

    Attributes:
        layers: the numbers in ``model.yaml`` of the layers that it changes, from 0, ascending.
        text: the change in the words of ``model.yaml``.
    """

    layers: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text


Changes = Iterator[tuple[Change, Description]]


def alternatives(files: ModelFiles) -> Changes:
    """Every single change, in the order of the layers; those the weights refuse among them."""
    description = files.description
    for number, layer in enumerate(description.layers):
        for field, value, other in _alternatives(layer):
            text = f"{_name(number, layer)} {_described(field, value)}"
            yield Change(layers=(number,), text=text), _with(description, {number: other})
    yield from _exchanged(files)
    yield from _joined(description)


def everywhere(files: ModelFiles) -> Changes:
    """The same change of an option in all layers that have it, and in all but the last."""
    description = files.description
    by_change: dict[tuple[str, str], dict[int, Layer]] = {}
    for number, layer in enumerate(description.layers):
        for field, value, other in _alternatives(layer):
            by_change.setdefault((field, _described(field, value)), {})[number] = other
    for (_, text), layers in by_change.items():
        for numbers in (list(layers), list(layers)[:-1]):
            if len(numbers) > 1:
                names = ", ".join(_name(number, description.layers[number]) for number in numbers)
                changed = {number: layers[number] for number in numbers}
                change = Change(layers=tuple(numbers), text=f"{names}, each {text}")
                yield change, _with(description, changed)


def _exchanged(files: ModelFiles) -> Changes:
    """Two layers of one kind with each other's weights, or in each other's place."""
    description = files.description
    layers = description.layers
    weights = Weights(dict(files.tensors), files.source)
    weights.leave_aside(description.ignore)
    prefixes = find_prefixes(layers, description.library, weights)
    full = [
        layer.model_copy(update={"prefix": prefix}) if layer.stores_parameters() else layer
        for layer, prefix in zip(layers, prefixes, strict=True)
    ]
    for i, j in itertools.combinations(range(len(layers)), 2):
        a, b = full[i], full[j]
        if type(a) is not type(b) or not a.stores_parameters():
            continue
        pair = {
            i: a.model_copy(update={"prefix": b.prefix}),
            j: b.model_copy(update={"prefix": a.prefix}),
        }
        text = f"{_name(i, a)} with prefix: {b.prefix} and {_name(j, b)} with prefix: {a.prefix}"
        yield Change(layers=(i, j), text=text), _with(description, pair)
        text = f"{_name(i, a)} and {_name(j, b)} in each other's place"
        yield Change(layers=(i, j), text=text), _with(description, {i: b, j: a})


def _joined(description: Description) -> Changes:
    """A JumpingKnowledge after the last layer that reads edges, where there is none."""
    layers = description.layers
    reading = [number for number, layer in enumerate(layers) if layer.reads_edges]
    if not reading or any(isinstance(layer, JumpingKnowledge) for layer in layers):
        return
    last = reading[-1]
    kind = LAYERS[description.library]["jumping_knowledge"]
    for mode in ("cat", "max"):
        joined = kind.model_validate({"conv": "jumping_knowledge", "mode": mode})
        changed = (*layers[: last + 1], joined, *layers[last + 1 :])
        text = (
            f"a layer {{conv: jumping_knowledge, mode: {mode}}} after {_name(last, layers[last])}"
        )
        yield (
            Change(layers=(last + 1,), text=text),
            description.model_copy(update={"layers": changed}),
        )


def _with(description: Description, changed: dict[int, Layer]) -> Description:
    layers = tuple(changed.get(n, layer) for n, layer in enumerate(description.layers))
    return description.model_copy(update={"layers": layers})


def _name(number: int, layer: Layer) -> str:
    return f"layers[{number}] ({layer.conv})"


def _described(field: str, value: Any) -> str:
    if value is None:
        return f"without {field}"
    # As YAML has it, where words need no quotes.
    return f"with {field}: {json.dumps(value).replace(chr(34), '')}"


def _alternatives(layer: Layer) -> Iterator[tuple[str, Any, Layer]]:
    """The field, its other value, and the layer that has it."""
    fields = layer.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for field, value, more in _values(layer):
        try:
            other = type(layer).model_validate(
                {**fields, field: value, **more}, by_alias=True, by_name=False
            )
        except ValidationError:
            continue  # The library refuses it, too.
        if other != layer:
            yield field, value, other


def _values(layer: Layer) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(field, value, other fields that have to change with it)."""
    for name, field in type(layer).model_fields.items():
        if name == "conv" or name in layer.fixed_fields():
            continue
        for value in choices(field.annotation):
            if value != getattr(layer, name):
                yield name, value, {}
    for part, values in (("activation", (None, *_ACTIVATIONS)), ("skip", (None, True, "input"))):
        for value in values:
            yield part, {"from": value} if value == "input" else value, _order(layer, part, value)
    if layer.layer_norm is not None:
        for mode in choices(type(layer.layer_norm).model_fields["mode"].annotation):
            yield "layer_norm", layer.layer_norm.model_dump(exclude_unset=True) | {"mode": mode}, {}
    for order in itertools.permutations(layer.parts_given()):
        yield "order", list(order), {}


def choices(annotation: Any) -> tuple[Any, ...]:
    """All values of an option that has few."""
    if annotation is bool:
        return (True, False)
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    inner = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
    return choices(inner[0]) if len(inner) == 1 else ()


def _order(layer: Layer, part: str, value: object) -> dict[str, Any]:
    """The order without the part that goes, or with the one that comes at the end."""
    if not layer.order:
        return {}
    rest = [name for name in layer.order if name != part]
    if value is None:
        return {"order": rest}
    return {"order": list(layer.order) if part in layer.order else [*rest, part]}
