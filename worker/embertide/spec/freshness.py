"""``spec.freshness``: how old the newest published version may become."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from embertide.spec.base import SpecModel
from embertide.spec.matching import Matching

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = r"^[1-9][0-9]{0,7}[smhd]$"
_MUST = "must be a whole number above 0 and a unit (s, m, h or d), such as 26h"
_LONGEST = 9

Duration = Annotated[str, Matching(_DURATION, _LONGEST, _MUST)]
"""A whole number with a unit: s, m, h or d."""


def duration_seconds(text: str) -> int:
    """The seconds of a :data:`Duration`, such as 93600 for ``26h``."""
    return int(text[:-1]) * _UNIT_SECONDS[text[-1]]


class Freshness(SpecModel):
    """The freshness objective of the output."""

    max_age: Duration = Field(
        description="Age that the output's newest version may reach: an integer and a unit "
        "(s, m, h or d), such as 26h for a daily refresh. Counted from when a job published it."
    )
