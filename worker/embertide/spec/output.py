"""Where and how the embeddings are published."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import (
    MAX_TYPES,
    Problem,
    ResultName,
    SpecModel,
    TypeName,
    Uri,
    raise_problems,
)
from embertide.spec.cel import Rule
from embertide.spec.delta import Delta
from embertide.spec.gate import Gate
from embertide.spec.inputs import Input
from embertide.spec.version_names import TARGETS, is_of_targets

OutputFormat = Literal["parquet", "npy"]

_ONCE = "self.{field}.all(a, self.{field}.exists_one(b, a == b))"
_GATE_COMPARES = "must be true where gate is set, whose bounds are against the current version"
_DELTA_COMPARES = "must be true where delta is set, which comes from comparing"
_NO_TARGETS = (
    f"must not end with {TARGETS}, the folder that the versions of spec.inference.targets go to; "
    "give the prefix above it"
)


class Output(SpecModel):
    """Where and how the embeddings are published."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.nodeTypes) || {_ONCE.format(field='nodeTypes')}",
            "must name each node type once",
            ".nodeTypes",
        ),
        Rule(
            f"!has(self.results) || {_ONCE.format(field='results')}",
            "must name each result once",
            ".results",
        ),
        Rule("!has(self.gate) || self.compare", _GATE_COMPARES, ".compare"),
        Rule("!has(self.delta) || self.compare", _DELTA_COMPARES, ".compare"),
        Rule(rf"!self.uri.matches(r'/{TARGETS}/*$')", _NO_TARGETS, ".uri"),
    )

    uri: Annotated[Uri, Affects.NEITHER] = Field(
        description="Prefix used by this output alone; versions are stored under it."
    )
    format: OutputFormat = Field(
        default="parquet", description="File format of the published embeddings."
    )
    dtype: Literal["float32", "float16"] = Field(
        default="float32", description="Data type of the published embeddings."
    )
    node_types: list[TypeName] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TYPES,
        description="The node types whose embeddings are published. If unset, all that the model "
        "gives embeddings of. What the others alone need is neither read nor computed.",
    )
    results: list[ResultName] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TYPES,
        description="The results that are published, of a model that gives several, each in a "
        "folder of its name. layer1, layer2, ... are what the layers of a model give, embedding "
        "the only result of a model that does not name it. If unset, all that the model names.",
    )
    keep_versions: Annotated[int, Affects.NEITHER] = Field(
        default=7,
        ge=1,
        description="Number of complete versions to keep; older ones are deleted after a new one "
        "is published.",
    )
    compare: Annotated[bool, Affects.NEITHER] = Field(
        default=True,
        description="true compares each version with the current one while it is published: rows "
        "new, removed and changed, how far they moved, and whether they keep their neighbours.",
    )
    gate: Annotated[Gate | None, Affects.NEITHER] = Field(
        default=None,
        description="The bounds that a version must be within to become the current one. If unset, "
        "every version becomes current, with warnings where it is beyond the default bounds.",
    )
    delta: Annotated[Delta | None, Affects.NEITHER] = Field(
        default=None,
        description="Publishes with each version its changes against the version that was current "
        "before: rows to replace or add, and ids to remove. If unset, there are none.",
    )

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        problems: list[Problem] = [
            ((field, at), f"is {name!r}, the same as {field}[{names.index(name)}]")
            for field, names in (("nodeTypes", self.node_types), ("results", self.results))
            for at, name in enumerate(names or [])
            if names is not None and names.index(name) < at
        ]
        if is_of_targets(self.uri):
            problems.append((("uri",), f"is {self.uri!r}; {_NO_TARGETS}"))
        if self.gate is not None and not self.compare:
            problems.append((("compare",), f"is false; {_GATE_COMPARES}"))
        elif self.delta is not None and not self.compare:
            problems.append((("compare",), f"is false; {_DELTA_COMPARES}"))
        raise_problems(problems)
        return self


def unknown_types(given: Input, output: Output) -> list[Problem]:
    """Node types to publish that the input does not have."""
    there = [node.name for node in given.nodes]
    return [
        (
            ("output", "nodeTypes", at),
            f"is {name!r}; must be the name of a node type: {', '.join(there)}",
        )
        for at, name in enumerate(output.node_types or [])
        if name not in there
    ]
