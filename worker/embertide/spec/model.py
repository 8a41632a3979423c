"""``spec.model``: a trained model's location, or a model that needs no training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.base import Problem, SpecModel, Uri, raise_problems
from embertide.spec.cel import Rule

Builtin = Literal["fastrp", "sgc", "sign", "appnp"]


@dataclass(frozen=True)
class FastRP:
    """The options of ``fastrp``, see :class:`ModelRef`."""

    dimensions: int = 128
    iteration_weights: Sequence[float] = (0.0, 1.0, 1.0)
    self_weight: float = 0.0
    normalization_strength: float = 0.0
    feature_dimensions: int | None = None
    seed: int = 0

    def projected(self, *, featured: bool) -> int:
        """How many of the dimensions begin with a projection of features."""
        half = self.dimensions // 2 if self.feature_dimensions is None else self.feature_dimensions
        return half if featured else 0


@dataclass(frozen=True)
class Propagation:
    """The options of ``sgc``, ``sign`` and ``appnp``, see :class:`ModelRef`."""

    hops: int = 2
    teleport: float = 0.1


_PROPAGATION = ("sgc", "sign", "appnp")
_OPTIONS: dict[str, tuple[str, ...]] = {
    **{field.name: ("fastrp",) for field in fields(FastRP)},
    "hops": _PROPAGATION,
    "teleport": ("appnp",),
}
"""Field -> the built-in models that have it."""
_MOST_ITERATIONS = 32


def _alias(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _only_for(name: str) -> str:
    return f"is for builtin {', '.join(_OPTIONS[name])}; omit it"


_MODEL_RULES = (
    Rule(
        "has(self.uri) != has(self.builtin)",
        "or builtin is required, and not both: a trained model, or one that needs no training",
        ".uri",
        "FieldValueRequired",
    ),
    *(
        Rule(
            f"!has(self.{_alias(name)}) || (has(self.builtin) && self.builtin in {list(of)})",
            _only_for(name),
            f".{_alias(name)}",
            "FieldValueForbidden",
        )
        for name, of in _OPTIONS.items()
    ),
    Rule(
        "!has(self.featureDimensions) || self.featureDimensions <= "
        "(has(self.dimensions) ? self.dimensions : 128)",
        "must be at most dimensions",
        ".featureDimensions",
    ),
)


class ModelRef(SpecModel):
    """A trained model's location, or the name of a model that needs no training."""

    rules: ClassVar[tuple[Rule, ...]] = _MODEL_RULES

    uri: Uri | None = Field(
        default=None,
        description="Folder that embertide export wrote (program.yaml and its weights), or folder "
        "with model.yaml and the weights (safetensors, or a state_dict). Exclusive with builtin.",
    )
    builtin: Builtin | None = Field(
        default=None,
        description="A model that needs no training. fastrp: embeddings of the edges alone, or "
        "of edges and features (Chen et al. 2019). sgc, sign, appnp: features averaged over the "
        "nodes within some hops. Exclusive with uri.",
    )
    dimensions: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None,
        description="fastrp: number of values in an embedding. Default: 128.",
    )
    iteration_weights: (
        Annotated[list[float], Field(min_length=1, max_length=_MOST_ITERATIONS)] | None
    ) = Field(
        default=None,
        description="fastrp: weight of the mean over neighbours, of that over their neighbours, "
        "and so on; as many as there are iterations. Default: [0, 1, 1].",
    )
    self_weight: float | None = Field(
        default=None,
        description="fastrp: weight of the vector that a node begins with, which nodes without "
        "neighbours have alone. Default: 0.",
    )
    normalization_strength: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        default=None,
        description="fastrp: power of its degree that a node's first vector is multiplied by; "
        "below 0, nodes of high degree count less. Default: 0.",
    )
    feature_dimensions: Annotated[int, Field(ge=0, le=4096)] | None = Field(
        default=None,
        description="fastrp: of dimensions, those that begin with a projection of the node's "
        "features. Default: half of them where a node type has features.",
    )
    seed: Annotated[int, Field(ge=0, le=(1 << 31) - 1)] | None = Field(
        default=None,
        description="fastrp: seed of the vectors that nodes begin with, drawn by ids. Default: 0.",
    )
    hops: Annotated[int, Field(ge=1, le=_MOST_ITERATIONS)] | None = Field(
        default=None,
        description="sgc, sign, appnp: number of averages. Default: 2.",
    )
    teleport: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="appnp: share of a node's features in each average. Default: 0.1.",
    )

    @property
    def location(self) -> str:
        """Where the model is, or its name, for messages."""
        return self.uri or f"builtin {self.builtin}"

    @property
    def fastrp(self) -> FastRP:
        """The options of ``fastrp``, those that are unset by default."""
        return FastRP(**self._given(FastRP))

    @property
    def propagation(self) -> Propagation:
        """The options of ``sgc``, ``sign`` and ``appnp``, likewise."""
        return Propagation(**self._given(Propagation))

    def _given(self, options: type) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name) for field in fields(options)}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def stated(self) -> dict[str, Any]:
        """What a version's manifest has of it: the URI, or the name and its options."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        if self.uri is None and self.builtin is None:
            problems.append((("uri",), "is required; or give builtin, such as fastrp"))
        if self.uri is not None and self.builtin is not None:
            problems.append((("builtin",), "cannot be combined with uri; give either"))
        problems += [
            ((_alias(name),), f"is {getattr(self, name)!r}; it {_only_for(name)}")
            for name, of in _OPTIONS.items()
            if getattr(self, name) is not None and self.builtin not in of
        ]
        given, most = self.feature_dimensions, self.fastrp.dimensions
        if given is not None and given > most:
            message = f"is {given}; it must be at most dimensions ({most})"
            problems.append((("featureDimensions",), message))
        raise_problems(problems)
        return self
