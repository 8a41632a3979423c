"""``unknownNodes`` of an edge type: what becomes of edges whose end is not among the nodes."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.base import SpecModel, raise_problems
from embertide.spec.cel import Rule, or_default
from embertide.spec.matching import Percent

_DEFAULT_MAX_SHARE = "1%"

_ACTION = or_default("self.action", "'refuse'")
_RULES = (
    Rule(
        f"!has(self.maxShare) || {_ACTION} == 'drop'",
        "is for action: drop; omit it",
        ".maxShare",
        "FieldValueForbidden",
    ),
)


class UnknownNodes(SpecModel):
    """What becomes of edges whose source or destination is not among the nodes."""

    rules: ClassVar[tuple[Rule, ...]] = _RULES

    action: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="refuse: the job fails, and names some of them. drop: they are left out, and "
        "counted in the report, the version's manifest, the status and a metric.",
    )
    max_share: Percent | None = Field(
        default=None,
        description="drop: largest share of the edges (rows) of the input that may be left out, "
        f"such as 0.5%; with more the job fails. Default: {_DEFAULT_MAX_SHARE}.",
    )

    @property
    def share(self) -> Fraction:
        """The largest share of edges that may be left out, exact; 0 where none may."""
        if self.action == "refuse":
            return Fraction(0)
        return Fraction((self.max_share or _DEFAULT_MAX_SHARE).removesuffix("%")) / 100

    @property
    def text(self) -> str:
        """What the manifest says, for messages."""
        if self.action == "refuse":
            return "unknownNodes: refuse"
        return f"unknownNodes.maxShare: {self.max_share or _DEFAULT_MAX_SHARE}"

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.max_share is not None and self.action != "drop":
            message = f"is {self.max_share!r}, which is for action: drop; omit it"
            raise_problems([(("maxShare",), message)])
        return self
