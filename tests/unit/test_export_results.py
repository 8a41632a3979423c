"""Modules that return several tensors: each becomes a result with a name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.spec.result_names import name_of
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from tests.support.export_results import CASES, HIDDEN, Layers
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


@pytest.mark.parametrize(
    ("choose", "names", "message"),
    [
        (
            lambda _x, h, out: (h, out),
            ("a",),
            "returns 2 results, and 1 names were given; --results",
        ),
        (lambda _x, h, out: {"a": h, "b": out}, ("c",), "returns no 'c', but a, b; --results"),
        (lambda _x, h, out: {"a b": h, "c": out}, (), "'a b' names a result .* rename it"),
        (lambda _x, h, out: {"../a": h, "c": out}, (), "'../a' names a result"),
        (lambda _x, h, out: (h, out.sum()), (), "whole graph is returned as 'out1'.*--results"),
        (lambda _x, h, out: (h, 3), (), "returns a int as 'out1'.*--results"),
        (lambda x, h, out: (), (), "returns nothing"),
        (lambda x, h, out: (x,), (), "returns its features as they are"),
    ],
)
def test_what_is_no_result(choose: Any, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        export_module(shake(Layers(choose)), results=names)


class Counting(nn.Module):
    """Its second result is another one in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.calls = nn.Linear(4, 2), torch.zeros(())

    def forward(self, x, edge_index):
        self.calls = self.calls + 1
        h = self.lin(x)
        return h, h * self.calls


def test_every_result_is_proved() -> None:
    with pytest.raises(ModelError, match="changes calls and reads it in the next call"):
        export_module(shake(Counting()))
