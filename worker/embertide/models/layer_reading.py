"""One layer of ``model.yaml`` by the class of its convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from embertide.models.layer import Layer, Library
from embertide.models.unknown import explain_conv, explain_field, explain_value
from embertide.spec.problems import Loc, explain


def read_layer(
    library: Library,
    kinds: Mapping[str, type[Layer]],
    value: Any,
    place: Loc,
    problems: list[tuple[Loc, str]],
) -> Layer | None:
    """A layer; what is wrong with it is appended to ``problems``, with its place.

    Args:
        kinds: by the word after ``conv``, those that may stand there.
    """
    if not isinstance(value, dict):
        problems.append((place, f"is {value!r}; must be a mapping with a field conv"))
        return None
    kind = kinds.get(str(value.get("conv")))
    if kind is None:
        problems.append(((*place, "conv"), explain_conv(value.get("conv"), library, list(kinds))))
        return None
    known = {name: option for name, option in value.items() if name in kind.model_fields}
    unknown = [name for name in value if name not in known]
    problems += [((*place, str(name)), explain_field(kind, str(name))) for name in unknown]
    try:
        return kind.model_validate(known, by_alias=True, by_name=False)
    except ValidationError as error:
        problems += [
            ((*place, *loc), message + explain_value(kind, known, loc))
            for loc, message in explain(kind, error)
        ]
        return None
