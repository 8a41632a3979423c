"""``spec.refresh``: what a run computes where the current version has all or most of it."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.base import Problem, SpecModel, raise_problems
from embertide.spec.cel import Rule
from embertide.spec.freshness import Duration, duration_seconds

_NO_TOLERANCE = (
    "has no effect without a tolerance: no row is wrong where all that have moved are computed;"
    " omit it, or set refresh.tolerance above 0"
)
_REFRESH_RULES = (
    Rule(
        "!has(self.maxError) || self.tolerance > 0.0",
        _NO_TOLERANCE,
        ".maxError",
        "FieldValueForbidden",
    ),
)


class Refresh(SpecModel):
    """When embeddings are computed again."""

    rules: ClassVar[tuple[Rule, ...]] = _REFRESH_RULES

    mode: Literal["auto", "full", "incremental"] = Field(
        default="auto",
        description="auto: where release, job, model and inputs are those of the current version, "
        "by the sizes and ETags of all objects and the versions of tables, it is confirmed and "
        "nothing is computed; where its rows were kept and that is likely to take less time, only "
        "rows that have changed are computed. incremental: these alone, however many there are. "
        "full: every run computes all rows of a version.",
    )
    keep: bool = Field(
        default=False,
        description="Whether the rows of all layers of a published version stay below the output, "
        "with digests of what each was made of, so that the next run need compute only rows that "
        "have changed. They take as much room as the tensors between layers, and the time to write "
        "them; they go when the next version is published.",
    )
    full_every: Duration = Field(
        default="7d",
        description="After how long a run computes all rows, whatever has changed: an integer "
        "and a unit (s, m, h or d). Counted from the last run that did.",
    )
    tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="How far a row between two layers may move, relative to its Euclidean norm, "
        "before the rows that are made of it are computed again for its sake; also how far a "
        "published row that is not computed may be from what the last layer makes. It counts from "
        "what these rows were made of, so errors do not add up from run to run. 0: results have "
        "the bits of a run of all rows.",
    )
    max_error: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="The largest error of a published row, relative to its norm; only with a "
        "tolerance above 0. Some rows that changes may reach are computed from exact ones, and "
        "where one is further off, all rows are computed. Default: ten times the tolerance, at "
        "most 0.5.",
    )
    resume: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether an attempt that follows a failed one goes on after the last layer "
        "that was kept below the output. auto: a layer is kept where writing it takes at most a "
        "tenth of the time that computing it again would, by the plan's estimates. always: every "
        "layer is kept but the last, which is published. never: none is kept, and none is read.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        if self.max_error is not None and self.tolerance == 0:
            problems.append((("maxError",), _NO_TOLERANCE))
        raise_problems(problems)
        return self

    @property
    def full_seconds(self) -> int:
        """The longest time between full runs, in seconds."""
        return duration_seconds(self.full_every)

    @property
    def largest_error(self) -> float:
        """The largest measured error of a row that is published, relative to its norm."""
        return min(10 * self.tolerance, 0.5) if self.max_error is None else self.max_error
