"""Modules that look up categories, whose columns are declared."""

from __future__ import annotations

import pytest

from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.export_categories import CASES
from tests.support.models import shake


@pytest.mark.parametrize("name", CASES)
def test_categories_are_recorded(name: str) -> None:
    case = CASES[name]
    done = export_module(
        shake(case.make()),
        width=case.width,
        edge_features=len(case.edges) or None,
        categories={"": case.nodes},
        edge_categories={"": case.edges},
    )
    assert done.proof.largest_error <= TOLERANCE
