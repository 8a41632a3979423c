"""What is declared of categories, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from tests.support.export_categories import CASES, Looked
from tests.support.models import shake
from tests.support.pyg import pyg


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


class Typed(nn.Module):
    """Categories of one of two node types."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(6, 3)
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.SAGEConv((3, 2), 4),
                ("item", "of", "user"): pyg.SAGEConv((2, 3), 4),
            }
        )

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict | {"user": self.emb(x_dict["user"][:, 0])}, edge_index_dict)


TYPES = GraphTypes({"user": 1, "item": 2}, ("user:buys:item", "item:of:user"))


def test_categories_by_node_type() -> None:
    done = export_module(shake(Typed()), graph=TYPES, categories={"user": {"0": 6}})
    assert done.proof.largest_error <= TOLERANCE


class AtEdges(nn.Module):
    """Categories of nodes, looked up edge by edge."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 4)

    def forward(self, x, edge_index):
        h = self.emb(x[edge_index[0]][:, 0].long())
        return x.new_zeros(len(x), 4).index_add(0, edge_index[1], h)


@pytest.mark.parametrize(
    ("make", "options", "told"),
    [
        (Looked, {"width": 3}, r"index out of range.*--categories"),
        (Looked, {"width": 3, "categories": {"": {0: 12}}}, r"index out of range.*--categories"),
        (Looked, {"width": 3, "categories": {"": {3: 10}}}, "column 3 .* have 3 columns, 0 to 2"),
        (Looked, {"categories": {"user": {0: 10}}}, "--categories names 'user', but the graph has"),
        (Looked, {"categories": {"user": {0: 10}}}, """no name; give --categories '{"0": 10}'"""),
        (Looked, {"width": 3}, r"""with --categories '\{"0": 10\}'"""),
        (
            Typed,
            {"graph": TYPES, "categories": {"0": 6}},
            """names '0', but the graph has user, item; give --categories '{"user": {"0": 10}}'""",
        ),
        (Typed, {"graph": TYPES, "categories": {"user": 6}}, "has 6 for a type; give columns by"),
        (Typed, {"graph": TYPES}, r"""--categories '\{"user": \{"0": 10\}\}', or --edge-cat"""),
        (Looked, {"categories": {"": {"first": 10}}}, r"'first': 10; give the number of a column"),
        (Looked, {"categories": {"": {0: 0}}}, r"0: 0; give the number of a column"),
        (
            AtEdges,
            {"width": 1, "categories": {"": {0: 10}}},
            r"py:\d+: categories of nodes are looked up at the ends of edges; look them up before",
        ),
    ],
)
def test_what_is_declared_wrongly(
    make: type[nn.Module], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        export_module(make(), **options)


def test_an_unused_table_of_torch_is_not_mistaken() -> None:
    """x of integers goes on as numbers where forward computes with it."""

    class Both(Looked):
        def forward(self, x, edge_index):
            h = torch.cat([self.emb(x[:, 0]), x.float()], dim=-1)
            return self.conv(h, edge_index)

    module = Both()
    module.conv = pyg.SAGEConv(5, 4)
    done = export_module(shake(module), categories={"": {0: 10}}, width=1)
    assert done.proof.largest_error <= TOLERANCE
