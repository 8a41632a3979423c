"""Reductions over all edges or all nodes: what an export makes of them, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.steps import ColumnStatistic, Message
from embertide.tracing.export import export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.export_statistics import OF_EDGES, Weights
from tests.support.models import Files, shake
from tests.support.pyg import pyg

TYPES = {"nodes": {"user": 5, "item": 4}, "edges": ["user:buys:item", "user:sees:item"]}


class Typed(nn.Module):
    """Weights of two relations into one type, divided by the largest of the first."""

    def __init__(self, largest_of: tuple[str, str, str] = ("user", "buys", "item")) -> None:
        super().__init__()
        self.buys, self.sees = pyg.GraphConv((5, 4), 3), pyg.GraphConv((5, 4), 3)
        self.largest_of = largest_of

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        buys, sees = ("user", "buys", "item"), ("user", "sees", "item")
        largest = edge_weight_dict[self.largest_of].max()
        ends = x_dict["user"], x_dict["item"]
        bought = self.buys(ends, edge_index_dict[buys], edge_weight_dict[buys] / largest)
        seen = self.sees(ends, edge_index_dict[sees], edge_weight_dict[sees] / largest)
        return {"item": bought + seen}


def test_a_relation_has_a_statistic_that_edges_of_others_may_read() -> None:
    types = named_types(TYPES, Files())  # type: ignore[arg-type]
    done = export_module(shake(Typed()), graph=types)
    assert done.proof.largest_error <= TOLERANCE
    steps = done.exported.program.steps
    (largest,) = [step for step in steps if isinstance(step, ColumnStatistic)]
    assert largest.of == "max"
    (first, *_) = [step for step in steps if isinstance(step, Message)]
    assert first.relation == "user:buys:item"


def test_a_statistic_is_no_layer_and_one_column_travels_for_it() -> None:
    """Layers are those that the module has; weights alone need no features of the sources."""
    done = export_module(shake(OF_EDGES["w / max"]()), width=5)
    program = done.exported.program
    assert program.layers == 1
    assert [layer.kind for layer in done.exported.layers] == ["GCNConv"]
    messages = [step for step in program.steps if isinstance(step, Message)]
    assert [program.widths[step.x] for step in messages if step.reduce == "max"] == [1]


def _weights(change: Callable[[Any], Any]) -> nn.Module:
    return shake(Weights(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w * w.max(dim=0).indices, "torch's argmax is not known here as a step"),
        (lambda w: w / w.prod(), "prod over all edges is not known; known are mean, sum, max"),
        (lambda w: w if w.max() > 1 else w + 1, "if, while or assert on a tensor"),
        (lambda w: w / w.max().item(), "a tensor becomes a number"),
        (lambda w: w * torch.cumsum(w.max(), 0), "cumsum of a statistic over all nodes or edges"),
    ],
)
def test_what_a_statistic_is_not(change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ModelError, match=rf"test_export_statistics.py:\d+: {message}"):
        export_module(_weights(change), width=5)
