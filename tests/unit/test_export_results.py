"""Modules that return several tensors: each becomes a result with a name."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from embertide.spec.result_names import name_of
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from tests.support.export_results import CASES, HIDDEN
from tests.support.models import read_again, shake
from tests.support.pyg import pyg


@pytest.mark.parametrize("name", CASES)
def test_results_have_names(name: str) -> None:
    case = CASES[name]
    done = export_module(shake(case.make()), results=case.given)
    assert done.proof.largest_error <= TOLERANCE
    assert tuple(done.proof.errors) == case.names
    again = read_again(done)
    assert [*map(name_of, again.results)] == [*case.names]
    assert [*done.summary.results] == [*case.names]


TYPES = GraphTypes({"user": 3, "item": 2}, ("user:buys:item", "item:of:user"))


class Typed(nn.Module):
    """Both node types, and scores of one of them."""

    def __init__(self, choose: Any) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.SAGEConv((3, 2), HIDDEN),
                ("item", "of", "user"): pyg.SAGEConv((2, 3), HIDDEN),
            }
        )
        self.score, self.choose = nn.Linear(HIDDEN, 1), choose

    def forward(self, x_dict, edge_index_dict):
        h = self.conv(x_dict, edge_index_dict)
        return self.choose(h, self.score(h["item"]))


@pytest.mark.parametrize(
    ("choose", "keys"),
    [
        (lambda h, score: (h, score), ["user/out0", "item/out0", "item/out1"]),
        (lambda h, s: {"h": h, "s": {"item": s}}, ["user/h", "item/h", "item/s"]),
        (lambda h, s: {"item": {"h": h["item"], "s": s}}, ["item/h", "item/s"]),
        (lambda h, _s: h, ["user", "item"]),
    ],
)
def test_results_of_several_node_types(choose: Any, keys: list[str]) -> None:
    done = export_module(shake(Typed(choose)), graph=TYPES)
    assert done.proof.largest_error <= TOLERANCE
    assert sorted(done.exported.program.results) == sorted(keys)
