"""Modules that change edges, count degrees and sum up themselves give, exported, what they give."""

from __future__ import annotations

import pytest
from torch import nn

from embertide.steps import Aggregate, Message
from embertide.tracing.export import Export, export_module
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.models import shake
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from tests.support import export_loops  # noqa: E402


def exported(module: nn.Module, **more: int) -> Export:
    done = export_module(shake(module), width=5, **more)  # type: ignore[arg-type]
    assert done.proof.largest_error <= TOLERANCE
    return done


@pytest.mark.parametrize("name", export_loops.CASES)
def test_own_code_of_users(name: str) -> None:
    exported(export_loops.CASES[name]())


@pytest.mark.parametrize("name", export_loops.FEATURES)
def test_features_of_new_self_loops(name: str) -> None:
    exported(export_loops.FEATURES[name](), edge_features=3)


def test_factors_of_both_ends_do_not_travel() -> None:
    """The documentation's GCN is a sum over edges of one column for each of the result."""
    steps = exported(export_loops.GCNConv()).exported.program.steps
    (total,) = [step for step in steps if isinstance(step, Aggregate)]
    assert (total.loops, total.norm, total.edge_weight) == ("more", "none", False)
    assert not any(isinstance(step, Message) for step in steps)
