"""``model.yaml`` as a whole: the library, the weights' name and the layers.

Which options a layer may have depends on the library, so layers are checked by the class that
`options` holds for them, and every problem of every layer is reported at once.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from embertide.errors import ManifestError, ModelError
from embertide.models.options.kinds import LAYERS
from embertide.models.options.layer import JumpingKnowledge, Layer, Library
from embertide.models.options.parts import Part
from embertide.models.unknown import explain_conv, explain_field, explain_value
from embertide.spec.base import raise_problems
from embertide.spec.loading import parse_document
from embertide.spec.problems import Loc, explain


class Description(Part):
    """The content of ``model.yaml``."""

    library: Library = Field(description="dgl or pyg, whose modules saved the weights")
    layers: tuple[Layer, ...] = Field(description="the layers in order, each a mapping with `conv`")
    weights: str | None = Field(
        default=None,
        description="name of the weights' file beside `model.yaml`, or its URI; without it, the"
        " one of weights.safetensors, model.safetensors, weights.pt, model.pt that is there",
    )
    ignore: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="patterns (`decoder.*`) of parameters that the embeddings do not pass"
        " through; anything else left out makes other embeddings than the model's",
    )
    input_width: int | None = Field(
        default=None,
        ge=1,
        description="columns of the features, where no weights of the first layers tell them",
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
        layers = [_check_layer(library, number, one, problems) for number, one in enumerate(value)]
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


def _check_joined(before: tuple[Layer, ...], layer: Layer) -> list[tuple[Loc, str]]:
    """JumpingKnowledge that names no layers needs some before it."""
    if not isinstance(layer, JumpingKnowledge) or layer.layers is not None:
        return []
    if any(one.reads_edges for one in before):
        return []
    return [(("layers", len(before)), "jumping_knowledge joins earlier layers; there is none")]


def _check_layer(
    library: Library, number: int, value: Any, problems: list[tuple[Loc, str]]
) -> Layer | None:
    """One layer by its own class; what is wrong is appended to ``problems``."""
    kinds = LAYERS[library]
    if not isinstance(value, dict):
        problems.append(((number,), f"is {value!r}; must be a mapping with a field conv"))
        return None
    kind = kinds.get(str(value.get("conv")))
    if kind is None:
        problems.append(((number, "conv"), explain_conv(value.get("conv"), library)))
        return None
    known = {name: option for name, option in value.items() if name in kind.model_fields}
    unknown = [name for name in value if name not in known]
    problems += [((number, str(name)), explain_field(kind, str(name))) for name in unknown]
    try:
        return kind.model_validate(known, by_alias=True, by_name=False)
    except ValidationError as error:
        problems += [
            ((number, *loc), message + explain_value(kind, known, loc))
            for loc, message in explain(kind, error)
        ]
        return None


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
