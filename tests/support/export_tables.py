"""Modules that read features and learned tables of the same nodes, as recommenders do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embertide.tracing.record.graphs import GraphTypes, RandomGraph
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from torch_geometric.data import HeteroData  # noqa: E402

ROWS, FEATURES, EMBEDDED, OUT = 31, 6, 4, 3
TYPES = GraphTypes({"user": FEATURES, "item": 0}, ("user:buys:item", "item:bought_by:user"))
TRIPLES = [("user", "buys", "item"), ("item", "bought_by", "user")]


class Cat(nn.Module):
    """Features and the table side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(ROWS, EMBEDDED)
        self.conv = pyg.SAGEConv(FEATURES + EMBEDDED, OUT)

    def forward(self, x, edge_index):
        return self.conv(torch.cat([x, self.emb.weight], dim=-1), edge_index)


class Turned(Cat):
    """The table first."""

    def forward(self, x, edge_index):
        return self.conv(torch.cat([self.emb.weight, x], dim=-1), edge_index)


class Equal(nn.Module):
    """As many columns of features as of the table, which are added."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(ROWS, FEATURES)
        self.lin, self.conv = nn.Linear(FEATURES, FEATURES), pyg.GCNConv(FEATURES, OUT)

    def forward(self, x, edge_index):
        return self.conv(self.lin(x) + self.emb.weight, edge_index)


class Numbered(Equal):
    """The rows of the table are named by the nodes' numbers."""

    def forward(self, x, node_id, edge_index):
        return self.conv(self.lin(x) + self.emb(node_id), edge_index)


class Several(nn.Module):
    """Two tables beside the features, and one of a single column."""

    def __init__(self) -> None:
        super().__init__()
        self.shop, self.brand = nn.Embedding(ROWS, 3), nn.Embedding(ROWS, FEATURES)
        self.bias = nn.Parameter(torch.randn(ROWS, 1))
        self.conv = pyg.SAGEConv(FEATURES + 3, OUT)

    def forward(self, x, edge_index):
        h = torch.cat([x + self.brand.weight, self.shop.weight], dim=1)
        return self.conv(h, edge_index) + self.bias


class Bare(Several):
    """Several tables, and no features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(FEATURES + 3, OUT)

    def forward(self, edge_index):
        h = torch.cat([self.brand.weight, self.shop.weight], dim=1)
        return self.conv(h, edge_index) + self.bias


class Positions(nn.Module):
    """A buffer with a row for each node, beside the features, cut as a longer one would be."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pe", torch.randn(ROWS, EMBEDDED))
        self.conv = pyg.SAGEConv(FEATURES + EMBEDDED, OUT)

    def forward(self, x, edge_index):
        return self.conv(torch.cat([x, self.pe[: x.size(0)]], dim=-1), edge_index)


class Looked(Positions):
    """Its rows are named by the nodes' numbers."""

    def forward(self, x, node_id, edge_index):
        return self.conv(torch.cat([x, self.pe[node_id]], dim=-1), edge_index)


class Below(nn.Module):
    """LightGCN as its authors, SELFRec and RecBole write it: users are the first nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(ROWS - 9, EMBEDDED), nn.Embedding(9, EMBEDDED)

    def forward(self, edge_index):
        conv, h = pyg.LGConv(), torch.cat([self.user.weight, self.item.weight])
        layers = [h]
        for _ in range(2):
            layers.append(conv(layers[-1], edge_index))
        return torch.stack(layers, dim=1).mean(dim=1)


class BelowFeatures(Below):
    """The same beside features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(FEATURES + EMBEDDED, OUT)

    def forward(self, x, edge_index):
        tables = torch.cat([self.user.weight, self.item.weight])
        return self.conv(torch.cat([x, tables], dim=-1), edge_index)


class BelowBeside(Below):
    """As many of both, looked up, and a table of all nodes beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(18, EMBEDDED), nn.Embedding(ROWS - 18, EMBEDDED)
        self.bias = nn.Parameter(torch.randn(ROWS, 1))

    def forward(self, edge_index):
        users = self.user(torch.arange(self.user.num_embeddings))
        h = torch.cat((users, self.item.weight.detach()), dim=0)
        return pyg.LGConv()(h, edge_index) + self.bias


class Typed(nn.Module):
    """The model of PyG's tutorial on link prediction, up to its classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.user_lin = nn.Linear(FEATURES, EMBEDDED)
        self.user_emb, self.item_emb = (
            nn.Embedding(ROWS, EMBEDDED),
            nn.Embedding(ROWS + 3, EMBEDDED),
        )
        self.conv = pyg.HeteroConv(
            {triple: pyg.SAGEConv((EMBEDDED, EMBEDDED), OUT) for triple in TRIPLES}
        )

    def forward(self, data):
        x_dict = {
            "user": self.user_lin(data["user"].x) + self.user_emb(data["user"].node_id),
            "item": self.item_emb(data["item"].node_id),
        }
        return self.conv(x_dict, data.edge_index_dict)


@dataclass(frozen=True)
class TableCase:
    """A module and how it is exported.

    Attributes:
        tables: as for `export_module`.
        features: columns of its features in a graph of one type; 0 without.
        given: what its forward takes beside ``edge_index``, in order.
    """

    make: Callable[[], nn.Module]
    tables: Mapping[str, Any]
    features: int = FEATURES
    given: tuple[str, ...] = ("x",)
    graph: GraphTypes | None = None
    width: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def own(self, module: nn.Module, graph: RandomGraph) -> dict[str, Tensor]:
        """What the module gives itself, by node type."""
        with torch.no_grad():
            if self.graph is not None:
                return dict(module(_data(graph)))
            values = {"x": graph.x.get(""), "node_id": graph.numbers("")}
            given = [values[name] for name in self.given]
            return {"": module(*given, graph.edges[""].edge_index)}


def _data(graph: RandomGraph) -> HeteroData:
    data = HeteroData()
    for name, count in graph.counts.items():
        data[name].node_id = torch.arange(count)
        if name in graph.x:
            data[name].x = graph.x[name]
    for relation, edges in graph.edges.items():
        data[graph.types.triple(relation)].edge_index = edges.edge_index
    return data


CASES: dict[str, TableCase] = {
    "cat": TableCase(Cat, {"": "emb"}),
    "table first": TableCase(Turned, {"": "emb"}),
    "width that is given": TableCase(Cat, {"": "emb"}, width=FEATURES),
    "sum": TableCase(Equal, {"": "emb"}),
    "node_id": TableCase(Numbered, {"": "emb"}, given=("x", "node_id")),
    "several": TableCase(Several, {"": ["shop", "brand", "bias"]}, width=FEATURES),
    "buffer": TableCase(Positions, {"": "pe"}),
    "buffer by node_id": TableCase(Looked, {"": "pe"}, given=("x", "node_id")),
    "row below row": TableCase(Below, {"": ["user", "item"]}, features=0, given=()),
    "row below row, beside": TableCase(
        BelowBeside, {"": ["user", "item", "bias"]}, features=0, given=()
    ),
    "several alone": TableCase(Bare, {"": ["shop", "brand", "bias"]}, features=0, given=()),
    "typed": TableCase(Typed, {"user": "user_emb", "item": "item_emb"}, graph=TYPES),
}
