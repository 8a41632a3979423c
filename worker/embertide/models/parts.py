"""What may follow a layer in ``model.yaml``: activations, norms and links, and their short forms.

Every field carries its description: ``docs/model.md`` is generated from these classes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from embertide.program.steps import ActivationKind
from embertide.spec.base import FieldProblems


class Part(BaseModel):
    """Base of everything in ``model.yaml``: unknown fields are refused, ``"4"`` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def _short(field: str) -> BeforeValidator:
    """Let ``name`` stand for ``{field: name}``."""
    return BeforeValidator(lambda value: {field: value} if isinstance(value, str) else value)


def switch(value: Any) -> Any:
    """Let ``true`` stand for "with the defaults" and ``false`` for "none"."""
    if isinstance(value, bool):
        return {} if value else None
    return value


class ActivationOptions(Part):
    """An element-wise function, as torch computes it."""

    kind: ActivationKind = Field(description="the function")
    slope: float | None = Field(
        default=None,
        description="negative slope of leaky_relu (without it 0.01) or alpha of elu (1.0)",
    )
    prefix: str | None = Field(
        default=None, description="prelu only, and required there: where its slopes are stored"
    )

    @model_validator(mode="after")
    def _fields_fit_kind(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.slope is not None and self.kind not in ("leaky_relu", "elu"):
            problems.append((("slope",), f"{self.kind} has no slope; leaky_relu and elu do"))
        if (self.prefix is not None) != (self.kind == "prelu"):
            found = "prelu needs" if self.kind == "prelu" else f"{self.kind} has no"
            problems.append((("prefix",), f"{found} a prefix: where its slopes are stored"))
        if problems:
            raise FieldProblems(problems)
        return self


Activation = Annotated[ActivationOptions, _short("kind")]


class NormOptions(Part):
    """A batch norm in eval mode; a layer norm has the same fields, and more."""

    prefix: str | None = Field(
        default=None,
        description="name of the module in the weights; without it, it is inferred from the names."
        " PyG's BatchNorm keeps its parameters one level below, under `module`: both names do",
    )
    eps: float = Field(default=1e-5, gt=0, description="added to the variance, as in training")
    affine: bool = Field(default=True, description="whether it has a scale and a shift")

    @property
    def stores(self) -> bool:
        """Whether the module has parameters."""
        return self.affine


class SkipOptions(Part):
    """A link that adds an earlier tensor."""

    source: Literal["layer", "input"] | int = Field(
        default="layer",
        alias="from",
        description="what is added: `layer` (the input of this layer), `input` (the features) or"
        " the number of an earlier layer, whose output it is (the first is 0)",
    )
    linear: str | None = Field(
        default=None,
        description="name of a Linear in the weights through which it passes; needed where the"
        " widths differ",
    )

    @field_validator("source", mode="before")
    @classmethod
    def _check_source(cls, value: Any) -> Any:
        if value in ("layer", "input") or (type(value) is int and value >= 0):
            return value
        raise ValueError(f"is {value!r}; allowed: layer, input, or the number of an earlier layer")


class MlpModule(Part):
    """One module of GIN's function: exactly one of linear, batch_norm, layer_norm, activation."""

    linear: str | None = Field(
        default=None, description="a Linear: its name below the function's (`''`: the next one)"
    )
    batch_norm: str | None = Field(default=None, description="a batch norm: its name, likewise")
    layer_norm: str | None = Field(default=None, description="a layer norm: its name, likewise")
    activation: Activation | None = Field(default=None, description="an activation")
    bias: bool = Field(default=True, description="of linear: whether it has a bias")
    eps: float = Field(default=1e-5, gt=0, description="of a norm: added to the variance")
    affine: bool = Field(default=True, description="of a norm: whether it has scale and shift")

    @model_validator(mode="after")
    def _one_module(self) -> Self:
        modules = (self.linear, self.batch_norm, self.layer_norm, self.activation)
        if sum(module is not None for module in modules) != 1:
            raise ValueError("must have one of: linear, batch_norm, layer_norm, activation")
        return self


def _mlp_word(value: Any) -> Any:
    """``linear`` and the norms stand for the next such module, other words are activations."""
    if not isinstance(value, str):
        return value
    return {value: ""} if value in ("linear", "batch_norm", "layer_norm") else {"activation": value}


Norm = Annotated[NormOptions | None, BeforeValidator(switch)]
Skip = Annotated[SkipOptions | None, BeforeValidator(switch)]
Mlp = list[Annotated[MlpModule, BeforeValidator(_mlp_word)]]
