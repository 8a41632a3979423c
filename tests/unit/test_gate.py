"""The bounds of a gate: what is beyond each, and what none of them says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from embertide.compare.gate import Facts, violations
from embertide.compare.histogram import Histogram
from embertide.spec.gate import Gate
from embertide.spec.matching import percent_share
from embertide.telemetry.comparison import Comparison, RowsRead, TypeComparison
from embertide.telemetry.omissions import DroppedEdges

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


def facts(*types: TypeComparison, **changes: Any) -> Facts:
    found = Comparison(state="compared", previous="V", types=list(types or [of_type()]))
    return replace(Facts(found), **changes)


def test_an_ordinary_version_is_within_all_default_bounds() -> None:
    assert violations(Gate(), facts()) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"removed_rows": 101}, "rows removed: 10.1%; maxRemovedRows is 10%"),
        ({"new_rows": 501}, "new rows: 50.1%; maxNewRows is 50%"),
        ({"zero_rows": 16}, "zero vectors: 1.6% of the rows, 0.5% before; maxZeroRows is 1%"),
        (
            {"duplicate_rows": 70, "name": "user"},
            "duplicate vectors of 'user': 7.0% of the rows, 1.0% before; maxDuplicateRows is 5%",
        ),
        (
            {"moved": moved(0.5)},
            "cosine with the current version: 0.5",
        ),
        ({"overlap": 0.42}, "nearest neighbours kept: 42.0%; minOverlap is 60%"),
        ({"dim": 16}, "embeddings have 16 dimensions, 8 before"),
    ],
)
def test_each_bound_of_rows(changes: dict[str, Any], text: str) -> None:
    (found,) = violations(Gate(), facts(of_type(**changes)))
    assert found.startswith(text)


@pytest.mark.parametrize("rows", [79, 121])
def test_edges_may_be_neither_fewer_nor_more(rows: int) -> None:
    edges = [RowsRead("a:x:a", rows, 100), RowsRead("a:y:a", 5, None)]
    (found,) = violations(Gate(), facts(comparison=Comparison(state="compared", edges=edges)))
    assert found == f"edges of a:x:a: {rows}, 100 before; maxEdgeChange is 20%"


def test_an_edge_type_that_is_gone_is_beyond_the_bound() -> None:
    edges = [RowsRead("a:x:a", 0, 100)]
    (found,) = violations(Gate(), facts(comparison=Comparison(state="compared", edges=edges)))
    assert found.startswith("edges of a:x:a: 0, 100 before")


def test_what_is_not_of_rows_has_bounds_too() -> None:
    gate = Gate(max_reference_error=1e-3, max_input_age="26h")
    found = violations(
        gate,
        facts(
            dropped=[DroppedEdges("a:x:a", 6, 100, [])],
            reference_errors={"": 2e-3},
            input_age=27 * 3600.0,
        ),
    )
    assert found == [
        "dropped edges of a:x:a: 6.0%; maxDroppedEdges is 5%",
        "error against the reference: 0.002; maxReferenceError is 0.001",
        "the newest input is 27h00m old; maxInputAge is 26h",
    ]
    assert violations(gate, facts(input_age=None)) == [
        "the age of the inputs is not known; leave maxInputAge out for them"
    ]


def test_nan_is_beyond_the_bound_of_the_reference() -> None:
    gate = Gate(max_reference_error=1e-3)
    assert len(violations(gate, facts(reference_errors={"": float("nan")}, input_age=0.0))) == 1


def test_a_first_version_has_nothing_to_be_compared_with() -> None:
    first = of_type(
        previous_rows=None, previous_dim=None, new_rows=None, removed_rows=None, moved=None,
        overlap=None, zero_rows=ROWS, duplicate_rows=ROWS, previous_zero_rows=None,
        previous_duplicate_rows=None,
    )  # fmt: skip
    assert violations(Gate(), facts(comparison=Comparison(state="first", types=[first]))) == []


def test_another_model_is_judged_by_neighbours_alone() -> None:
    assert violations(Gate(), facts(of_type(moved=None))) == []
    assert len(violations(Gate(), facts(of_type(moved=None, overlap=0.3)))) == 1


def test_a_comparison_that_failed_is_beyond_every_bound() -> None:
    failed = Comparison(state="failed", why="not compared with V: part-00000 is damaged")
    assert violations(Gate(), facts(comparison=failed)) == [failed.why]


def test_a_node_type_that_is_no_longer_published_is_beyond_every_bound() -> None:
    gone = Comparison(state="compared", gone_types=["item"])
    assert violations(Gate(), facts(comparison=gone)) == ["'item' is no longer published"]


def test_100_percent_switches_a_bound_off() -> None:
    gate = Gate(max_removed_rows="100%", max_new_rows="100%", min_overlap="0%", min_cosine=-1.0)
    bad = of_type(removed_rows=ROWS, new_rows=ROWS, overlap=0.0, moved=moved(1.9))
    assert violations(gate, facts(bad)) == []


@pytest.mark.parametrize("text", ["100.5%", "101%", "-1%", "10", "ten%", ""])
def test_a_share_is_a_percentage(text: str) -> None:
    with pytest.raises(ValidationError, match="percentage"):
        Gate(max_removed_rows=text)


def test_shares_are_numbers() -> None:
    assert [percent_share(text) for text in ("0%", "12.5%", "100%")] == [0, 0.125, 1]
