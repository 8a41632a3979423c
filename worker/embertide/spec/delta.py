"""``spec.output.delta``: the changes of a version since the one before."""

from __future__ import annotations

from pydantic import Field

from embertide.spec.base import SpecModel


class Delta(SpecModel):
    """Each version has its changes against the one that was current before it."""

    tolerance: float = Field(
        default=1e-3,
        ge=0,
        # API servers compare whole numbers with bounds in int64, which 1e19 is beyond.
        le=1e18,
        description="Euclidean distance by which a row may differ from what readers of the deltas "
        "have of it. Rows that stay within are not in the delta. 0 has all rows that differ in any "
        "bit.",
    )
