"""Where a description and the user's own forward part: the first layer that can differ.

A ``model.yaml`` that fits the weights can still say another model: a forgotten activation, a wrong
``aggr``, a link on the wrong side of a ReLU. Names and shapes do not show that; vectors that the
user's own forward gave do. They are of the last layer only, so nothing tells directly where the
difference begins. But such mistakes are changes of one option of one layer, and there are few:
each is tried, and those that make the vectors agree are named.
"""

from __future__ import annotations

import itertools
import json
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import ValidationError

from embertide.errors import ModelError
from embertide.models.description import Description
from embertide.models.options.layer import Layer
from embertide.models.read import ModelFiles
from embertide.models.reference import LayerGraph, run_reference

_ACTIVATIONS = ("relu", "elu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid")


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another value of one option of one layer.

    Attributes:
        layer: the layer's number in ``model.yaml``, from 0.
        error: what is left of the difference, as a share of the largest magnitude.
    """

    layer: int
    conv: str
    field: str
    value: Any
    error: float

    def __str__(self) -> str:
        where = f"layers[{self.layer}] ({self.conv})"
        if self.value is None:
            return f"{where} without {self.field}"
        # As YAML has it, where words need no quotes.
        return f"{where} with {self.field}: {json.dumps(self.value).replace(chr(34), '')}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the program is from the expected vectors, and what mends it.

    Attributes:
        error: the largest difference, as a share of the largest expected magnitude.
        row: the place among the expected rows where it is.
        mends: changes that make all vectors agree, in the order of the layers.
        nearest: the change that leaves least, where none mends; None where none helps.
    """

    error: float
    row: int
    mends: tuple[Change, ...]
    nearest: Change | None

    @property
    def layer(self) -> int | None:
        """The first layer that can differ; None where no single option explains it."""
        return self.mends[0].layer if self.mends else None


def first_difference(
    files: ModelFiles,
    graphs: Sequence[LayerGraph],
    x: torch.Tensor,
    *,
    rows: torch.Tensor,
    expected: torch.Tensor,
    tolerance: float = 1e-4,
) -> Difference | None:
    """Hold a model against what the user's own forward gave; None where they agree.

    Runs the float64 reference once, and once for each change that is tried (some 20 a layer), so
    it is for graphs of up to some 10^5 edges.

    Args:
        graphs: one layer graph for each layer that reads edges, whole.
        x: [N, D] features.
        rows: [n] int64 node ids that ``expected`` is of.
        expected: [n, D'] their vectors.
        tolerance: largest error that counts as agreement, as a share of the largest magnitude.

    Raises:
        ModelError: the weights do not fit the description, or ``expected`` has another width.
    """
    model = _Comparison(files=files, graphs=graphs, x=x, rows=rows, expected=expected.double())
    errors = model.errors(files.description)
    worst = float(errors.max())
    if worst <= tolerance:
        return None
    changes = list(model.changes())
    mends = tuple(change for change in changes if change.error <= tolerance)
    nearest = min(changes, key=lambda change: change.error, default=None)
    if mends or (nearest is not None and nearest.error >= worst):
        nearest = None
    return Difference(error=worst, row=int(errors.argmax()), mends=mends, nearest=nearest)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    files: ModelFiles
    graphs: Sequence[LayerGraph]
    x: torch.Tensor
    rows: torch.Tensor
    expected: torch.Tensor

    def errors(self, description: Description) -> torch.Tensor:
        """[n] each row's largest difference, as a share of the largest expected magnitude."""
        program = self.files.program(description)
        if program.output_width != self.expected.shape[1]:
            raise ModelError(
                f"the expected vectors have {self.expected.shape[1]} columns, but the model"
                f" {self.files.source} gives {program.output_width}"
            )
        found = run_reference(program, self.graphs, self.x)[self.rows]
        return (found - self.expected).abs().amax(1) / self.expected.abs().max()

    def changes(self) -> Iterator[Change]:
        """Every change that fits the weights, with what it leaves of the difference."""
        layers = self.files.description.layers
        for number, layer in enumerate(layers):
            for field, value, other in _alternatives(layer):
                changed = (*layers[:number], other, *layers[number + 1 :])
                description = self.files.description.model_copy(update={"layers": changed})
                try:
                    error = float(self.errors(description).max())
                except ModelError:
                    continue  # The weights rule it out.
                yield Change(layer=number, conv=layer.conv, field=field, value=value, error=error)


def _alternatives(layer: Layer) -> Iterator[tuple[str, Any, Layer]]:
    """The field, its other value, and the layer that has it."""
    given = layer.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for field, value, more in _values(layer):
        try:
            other = type(layer).model_validate(
                {**given, field: value, **more}, by_alias=True, by_name=False
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
        for value in _choices(field.annotation):
            if value != getattr(layer, name):
                yield name, value, {}
    for part, values in (("activation", (None, *_ACTIVATIONS)), ("skip", (None, True, "input"))):
        for value in values:
            yield part, {"from": value} if value == "input" else value, _order(layer, part, value)
    for order in itertools.permutations(layer.parts_given()):
        yield "order", list(order), {}


def _choices(annotation: Any) -> tuple[Any, ...]:
    """All values of an option that has few."""
    if annotation is bool:
        return (True, False)
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    inner = [one for one in typing.get_args(annotation) if one is not type(None)]
    return _choices(inner[0]) if len(inner) == 1 else ()


def _order(layer: Layer, part: str, value: object) -> dict[str, Any]:
    """The order without the part that goes, or with the one that comes at the end."""
    if not layer.order:
        return {}
    rest = [name for name in layer.order if name != part]
    if value is None:
        return {"order": rest}
    return {"order": list(layer.order) if part in layer.order else [*rest, part]}
