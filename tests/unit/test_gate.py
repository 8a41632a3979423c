"""The bounds of a gate: what is beyond each, and what none of them says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from embertide.facts.telemetry.comparison import Comparison, RowsRead, TypeComparison
from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.io.compare.gate import Facts, violations
from embertide.io.compare.histogram import Histogram
from embertide.spec.gate import Gate
from embertide.spec.matching import percent_share
from tests.support.expected import Expected, inputs

ROWS = 1000


def of_type(**changes: Any) -> TypeComparison:
    """A type that hardly changed."""
    same: dict[str, Any] = {
        "name": "", "rows": ROWS, "dim": 8, "zero_rows": 5, "not_finite_rows": 0,
        "duplicate_rows": 10, "norms": Histogram().describe(), "previous_rows": ROWS,
        "previous_dim": 8, "previous_zero_rows": 5, "previous_duplicate_rows": 10, "new_rows": 20,
        "removed_rows": 20, "changed_rows": 500, "unchanged_rows": 480, "moved": moved(0.01),
        "overlap": 0.95, "residual": 0.01, "sample_rows": 980,
    }  # fmt: skip
    return TypeComparison(**{**same, **changes})


def moved(distance: float) -> Any:
    import numpy as np

    histogram = Histogram()
    histogram.add(np.full(100, distance))
    return histogram.describe()


CASES = inputs("gate.txt")


@pytest.mark.parametrize("name", CASES)
def test_what_is_beyond_a_bound(name: str, expected: Expected) -> None:
    given = yaml.safe_load(CASES[name]) or {}
    changes, facts = given.get("type", {}), given.get("facts", {})
    if changes.get("moved") is not None:
        changes["moved"] = moved(changes["moved"])
    compared = {"state": "compared", "previous": "V", "types": [of_type(**changes)]}
    compared |= given.get("comparison", {})
    if "edges" in compared:
        compared |= {"types": [], "edges": [RowsRead(*edges) for edges in compared["edges"]]}
    if "dropped" in facts:
        facts["dropped"] = [DroppedEdges(*dropped, []) for dropped in facts["dropped"]]
    gate = Gate.model_validate(given.get("gate", {}))
    found = "\n".join(violations(gate, Facts(Comparison(**compared), **facts)))
    expected.check("gate.txt", name, f"{CASES[name]}--\n{found or 'within all bounds'}", CASES)


@pytest.mark.parametrize("text", ["100.5%", "101%", "-1%", "10", "ten%", ""])
def test_a_share_is_a_percentage(text: str) -> None:
    with pytest.raises(ValidationError, match="percentage"):
        Gate(max_removed_rows=text)


def test_shares_are_numbers() -> None:
    assert [percent_share(text) for text in ("0%", "12.5%", "100%")] == [0, 0.125, 1]
