"""``model.yaml`` as a whole: the library, the weights' name and the layers.

Which options a layer may have depends on the library, so layers are checked by the class that
`options` holds for them, and every problem of every layer is reported at once.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from embertide.errors import ManifestError, ModelError
from embertide.models.convs.jumping_knowledge import JumpingKnowledge
from embertide.models.kinds import kinds_of
from embertide.models.layer import Layer, Library
from embertide.models.layer_reading import read_layer
from embertide.models.node_types import NodeTypes
from embertide.models.parts import Part
from embertide.models.type_problems import check_types
from embertide.models.typed_layer import SeveralTypes, parse_relation
from embertide.spec.base import raise_problems
from embertide.spec.loading import parse_document
from embertide.spec.problems import Loc


class Description(Part):
    """The content of ``model.yaml``."""

    library: Library = Field(description="dgl or pyg, whose modules saved the weights")
    layers: tuple[Layer, ...] = Field(description="the layers in order, each a mapping with `conv`")
    weights: str | None = Field(
        default=None,
        description="name of the weights' file beside `model.yaml`, or its URI; without it, the"
        " one of weights.safetensors, model.safetensors, weights.pt, model.pt,"
        " pytorch_model.bin, or an index of several such as model.safetensors.index.json, that is"
        " there",
    )
    key: str = Field(
        default="",
        description="where in that file the weights are, if it holds several: keys of nested"
        " dicts, then a prefix of names, with dots between (`ema.module`)",
    )
    ignore: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="patterns (`decoder.*`) of parameters that the embeddings do not pass"
        " through; anything else left out makes other embeddings than the model's",
    )
    relations: tuple[str, ...] = Field(
        default=(),
        description="of a model of several node types or relations: source type, edge type and"
        " destination type of each, as `user:buys:item`; weights that are numbered by relation"
        " follow this order. Without it, those that the layers name",
    )
    types: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="the node types; weights that are numbered by node type follow this order."
        " Without it, those of the relations, in order",
    )
    features: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        description="the node types whose features the model reads; without it, all",
    )
    outputs: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="the node types that get embeddings; without it, all that have a tensor"
        " after the last layer",
    )
    input_width: Annotated[int, Field(ge=1)] | dict[str, Annotated[int, Field(ge=1)]] | None = (
        Field(
            default=None,
            description="columns of the features, where no weights of the first layers show them;"
            " of several node types a mapping",
        )
    )
    reference_tolerance: float = Field(
        default=1e-3,
        gt=0,
        description="how far embeddings may be from those of a `reference.parquet` beside"
        " `model.yaml`, as a share of its largest value; a run publishes nothing beyond it",
    )

    @field_validator("layers", mode="plain")
    @classmethod
    def _check_layers(cls, value: Any, info: ValidationInfo) -> tuple[Layer, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list with at least one layer")
        library = info.data.get("library")
        if library is None:
            return ()
        problems: list[tuple[Loc, str]] = []
        layers = [
            read_layer(library, kinds_of(library), one, (number,), problems)
            for number, one in enumerate(value)
        ]
        raise_problems(problems)
        return tuple(layer for layer in layers if layer is not None)

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        problems: list[tuple[Loc, str]] = []
        for number, layer in enumerate(self.layers):
            problems += _check_joined(self.layers[:number], layer)
            problems += [
                (
                    ("layers", number, *place),
                    f"is {one}; must be the number of a layer before {number}",
                )
                for place, one in layer.earlier()
                if one >= number
            ]
        raise_problems(problems)
        return self

    @field_validator("relations", mode="plain")
    @classmethod
    def _check_relations(cls, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError(f"is {value!r}; must be a list of relations, such as user:buys:item")
        problems: list[tuple[Loc, str]] = []
        for at, one in enumerate(value):
            try:
                parse_relation(one)
            except ValueError as error:
                problems.append(((at,), str(error)))
        raise_problems(problems)
        return tuple(value)

    @model_validator(mode="after")
    def _check_types(self) -> Self:
        raise_problems(check_types(self.layers, self.node_types, self.input_width))
        return self

    @property
    def node_types(self) -> NodeTypes:
        """The node types and relations, as far as the description has some."""
        named = dict.fromkeys(
            relation
            for layer in self.layers
            if isinstance(layer, SeveralTypes)
            for relation in layer.over(())
        )
        given = tuple(map(parse_relation, self.relations)) or tuple(named)
        return NodeTypes(given, self.types, self.features, self.outputs)


def _check_joined(before: tuple[Layer, ...], layer: Layer) -> list[tuple[Loc, str]]:
    """JumpingKnowledge that names no layers needs some before it."""
    if not isinstance(layer, JumpingKnowledge) or layer.layers is not None:
        return []
    if any(one.reads_edges for one in before):
        return []
    return [(("layers", len(before)), "jumping_knowledge joins earlier layers; there is none")]


def parse_description(data: bytes, source: str) -> Description:
    """Read ``model.yaml``.

    Raises:
        ModelError: with every problem, each with path and line.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{source} is not text in UTF-8 (byte {error.start})") from None
    try:
        return parse_document(Description, text, source)
    except ManifestError as error:
        raise ModelError(str(error)) from None
