"""Models that read features of edges, as PyG's examples write them; nothing is shaped for export.

Each reads IN columns of nodes and K of edges. Imported as a user's file is.
"""

# ruff: noqa: RET504 - written as the examples are.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn import BatchNorm1d, Linear, ModuleList, ReLU, Sequential

from tests.support.export_models import HIDDEN, IN, OUT
from tests.support.pyg import pyg

K = 3


class Attention(torch.nn.Module):
    """GAT and GATv2 with edge_dim: each fills in the features of new self-loops in its own way."""

    def __init__(self, edge_dim: int = K) -> None:
        super().__init__()
        self.conv1 = pyg.GATConv(IN, 4, heads=2, edge_dim=edge_dim)
        self.conv2 = pyg.GATv2Conv(8, 4, heads=2, edge_dim=edge_dim, fill_value="max")
        self.conv3 = pyg.GATConv(8, OUT, heads=2, concat=False, edge_dim=edge_dim, fill_value=0.5)

    def forward(self, x, edge_index, edge_attr=None):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index, edge_attr))
        x = F.elu(self.conv2(x, edge_index, edge_attr=edge_attr))
        x = self.conv3(x, edge_index, edge_attr)
        return F.log_softmax(x, dim=1)


class UniMP(torch.nn.Module):
    """examples/unimp_arxiv.py, with edges that have features, read from a Data."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.TransformerConv(IN, 4, heads=2, edge_dim=K, beta=True)
        self.norm = torch.nn.LayerNorm(8)
        self.conv2 = pyg.TransformerConv(8, OUT, heads=2, concat=False, edge_dim=K)

    def forward(self, data):
        x, edge_index, edge_attr = data.x, data.edge_index, data.edge_attr
        x = self.norm(self.conv1(x, edge_index, edge_attr)).relu()
        x = self.conv2(x, edge_index, edge_attr)
        return x


class Encoded(torch.nn.Module):
    """OGB's way: each layer encodes the features of edges itself, and edges stay for the next."""

    def __init__(self) -> None:
        super().__init__()
        self.node_encoder = Linear(IN, HIDDEN)
        self.edge_encoder = Linear(K, HIDDEN)
        self.convs = ModuleList()
        for _ in range(2):
            mlp = Sequential(Linear(HIDDEN, HIDDEN), BatchNorm1d(HIDDEN), ReLU())
            self.convs.append(pyg.GINEConv(mlp, train_eps=True))
        self.gat = pyg.GATConv(HIDDEN, OUT, edge_dim=HIDDEN, add_self_loops=False)

    def forward(self, x, edge_index, edge_attr):
        x = self.node_encoder(x)
        edge_attr = self.edge_encoder(edge_attr).relu()
        for conv in self.convs:
            x = x + F.relu(conv(x, edge_index, edge_attr))
        return self.gat(x, edge_index, edge_attr)


class EdgeNetwork(torch.nn.Module):
    """examples/qm9_nn_conv.py without the pooling: a matrix for each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.lin0 = torch.nn.Linear(IN, 4)
        net = Sequential(Linear(K, 5), BatchNorm1d(5), ReLU(), Linear(5, 4 * 4))
        self.conv = pyg.NNConv(4, 4, net, aggr="mean", root_weight=False)
        self.lin1 = torch.nn.Linear(4, OUT)

    def forward(self, data):
        out = F.relu(self.lin0(data.x))
        for _ in range(2):
            out = out + F.relu(self.conv(out, data.edge_index, data.edge_attr))
        return self.lin1(out)


class OwnConv(pyg.MessagePassing):
    """A convolution of a user's own: several columns of edges, both ends, a gate."""

    def __init__(self, width: int, aggr="max") -> None:
        super().__init__(aggr=aggr)
        self.mlp = Sequential(Linear(2 * width + K, width), torch.nn.LayerNorm(width), ReLU())
        self.gate = Linear(1, width)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        value = self.mlp(torch.cat([x_i, x_j, edge_attr], dim=-1))
        return value * self.gate(edge_attr[:, -1:]).sigmoid()


class Own(torch.nn.Module):
    """The same beside CGConv and a library's convolution that is not known as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.own = OwnConv(IN)
        self.crystal = pyg.CGConv(IN, dim=K, batch_norm=True)
        self.gated = pyg.ResGatedGraphConv(IN, OUT, edge_dim=K)

    def forward(self, x, edge_index, edge_attr):
        x = x + self.own(x, edge_index, edge_attr)
        x = self.crystal(x, edge_index, edge_attr)
        return self.gated(x, edge_index, edge_attr)


class Several(torch.nn.Module):
    """Several aggregators side by side, and one with the scalers of PNA."""

    def __init__(self) -> None:
        super().__init__()
        self.several = OwnConv(IN, aggr=["min", "std", pyg.aggr.MeanAggregation()])
        self.lin = Linear(3 * IN, 4)
        degrees = torch.tensor([2, 7, 5, 3])
        self.pna = pyg.PNAConv(4, OUT, ["mean", "var"], ["identity", "linear"], degrees, edge_dim=K)

    def forward(self, x, edge_index, edge_attr):
        x = self.lin(self.several(x, edge_index, edge_attr)).relu()
        return self.pna(x, edge_index, edge_attr)


class Both(torch.nn.Module):
    """Features and a weight of each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(IN, HIDDEN)
        self.conv2 = pyg.GATv2Conv(HIDDEN, OUT, edge_dim=K)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        x = self.conv1(x, edge_index, edge_weight).tanh()
        return self.conv2(x, edge_index, edge_attr)


PYG = {
    "attention": Attention,
    "unimp": UniMP,
    "encoded": Encoded,
    "edge network": EdgeNetwork,
    "own": Own,
    "several aggregators": Several,
    "both": Both,
}
"""By name; "unimp" and "edge network" take a Data."""


class HeteroEdges(torch.nn.Module):
    """HeteroConv over relations of which two have features, one without."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv(
            {
                ("user", "buys", "item"): pyg.GATConv((5, 4), 3, edge_dim=2, add_self_loops=False),
                ("item", "of", "user"): pyg.SAGEConv((4, 5), 3),
                ("user", "knows", "user"): pyg.GATv2Conv(5, 3, edge_dim=K, fill_value="min"),
            }
        )

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        return self.conv(x_dict, edge_index_dict, edge_attr_dict)


HETERO_GRAPH = {
    "nodes": {"user": 5, "item": 4},
    "edges": {("user", "buys", "item"): 2, ("item", "of", "user"): 0, ("user", "knows", "user"): K},
}
"""As ``data.num_node_features`` and ``data.num_edge_features`` of PyG's HeteroData give it."""
