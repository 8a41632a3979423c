"""``spec.output.gate``: the bounds that a version must be within to become the current one."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.spec.base import SpecModel
from embertide.spec.freshness import Duration, duration_seconds
from embertide.spec.matching import PercentOrAll


class Gate(SpecModel):
    """Bounds of a version, most of them against the version that is current when it is computed."""

    mode: Literal["warn", "hold"] = Field(
        default="hold",
        description="What happens to a version beyond a bound. hold: it is complete but does not "
        "become current, until embertide release. warn: it becomes current, with a warning.",
    )
    max_removed_rows: PercentOrAll = Field(
        default="10%",
        description="Share of the current version's rows, by node type, that the new version may "
        "lack.",
    )
    max_new_rows: PercentOrAll = Field(
        default="50%",
        description="Share of the new version's rows, by node type, whose ids the current version "
        "may lack.",
    )
    max_edge_change: PercentOrAll = Field(
        default="20%",
        description="Share by which the rows of an edge type's input may be more or fewer than for "
        "the current version.",
    )
    max_dropped_edges: PercentOrAll = Field(
        default="5%",
        description="Share of an edge type's rows that may be dropped (unknownNodes: drop).",
    )
    max_zero_rows: PercentOrAll = Field(
        default="1%",
        description="Share of rows, by node type, that may be zero vectors beyond the share that "
        "the current version has.",
    )
    max_duplicate_rows: PercentOrAll = Field(
        default="5%",
        description="Share of rows, by node type, whose vector another row may have too, beyond "
        "the share that the current version has.",
    )
    min_cosine: float = Field(
        default=0.9,
        ge=-1,
        le=1,
        description="Least cosine between a row and the same row of the current version, of all "
        "but the 5% that moved most, by node type. Not for another model, whose vectors are not "
        "comparable.",
    )
    min_overlap: PercentOrAll = Field(
        default="60%",
        description="Least share of its 10 nearest neighbours that a row keeps, on average, within "
        "a sample of 20,000 ids.",
    )
    max_reference_error: float | None = Field(
        default=None,
        gt=0,
        description="Largest error against the model's reference, as a share of the reference's "
        "largest value. If unset, the model's own tolerance is the bound, beyond which nothing is "
        "published.",
    )
    max_input_age: Duration | None = Field(
        default=None,
        description="Age that the newest object of all inputs may have when the version is "
        "computed, such as 26h. If unset, it does not matter.",
    )

    @property
    def max_input_seconds(self) -> int | None:
        """The largest age of the inputs in seconds."""
        return None if self.max_input_age is None else duration_seconds(self.max_input_age)
