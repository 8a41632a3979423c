"""``model.yaml`` as a whole: the library, the weights' name and the layers.

Which options a layer may have depends on the library, so layers are checked by the class that
`options` holds for them, and every problem of every layer is reported at once.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from embertide.errors import ManifestError, ModelError
from embertide.models.options import LAYERS, Layer, Library, Part
from embertide.spec.base import raise_problems
from embertide.spec.loading import parse_document
from embertide.spec.problems import Loc, explain


class Description(Part):
    """The content of ``model.yaml``.

    ``ignore`` holds patterns of parameters to leave aside; ``input_width`` is needed only where
    the first layer has no weights that tell it.
    """

    library: Library = Field(description="dgl or pyg, whose modules saved the weights")
    layers: tuple[Layer, ...] = Field(description="the convolution layers in order")
    weights: str | None = None
    ignore: tuple[str, ...] = Field(default=(), strict=False)
    input_width: int | None = Field(default=None, ge=1)

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
    def _check_skips(self) -> Self:
        problems: list[tuple[Loc, str]] = []
        for number, layer in enumerate(self.layers):
            source = None if layer.skip is None else layer.skip.source
            if isinstance(source, int) and source >= number:
                message = f"is {source}; must be the number of a layer before {number}"
                problems.append((("layers", number, "skip", "from"), message))
        raise_problems(problems)
        return self


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
        found = f"is {value['conv']!r}" if "conv" in value else "is required"
        problems.append(((number, "conv"), f"{found}; {library} has {', '.join(kinds)}"))
        return None
    try:
        return kind.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems += [((number, *loc), message) for loc, message in explain(kind, error)]
        return None


def parse_description(data: bytes, source: str) -> Description:
    """Read ``model.yaml``; raises ModelError with every problem, each with path and line."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"{source} is not text in UTF-8 (byte {error.start})") from None
    try:
        return parse_document(Description, text, source)
    except ManifestError as error:
        raise ModelError(str(error)) from None
