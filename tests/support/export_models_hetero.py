"""Models of graphs with types as PyG's examples write them; nothing here is shaped for export.

Imported as a user's file is, so it imports what such a file imports.
"""

# ruff: noqa: RET504 - written as the examples are.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from torch_geometric.utils import softmax  # noqa: E402

HIDDEN, OUT = 4, 3
NODES = {"author": 5, "paper": 6, "term": 3, "conference": 0}
TRIPLES = [
    ("author", "to", "paper"),
    ("paper", "to", "author"),
    ("paper", "to", "term"),
    ("term", "to", "paper"),
    ("paper", "cites", "paper"),
]
GRAPH = {"nodes": NODES, "edges": TRIPLES}


class HeteroGNN(torch.nn.Module):
    """examples/hetero/hetero_conv_dblp.py: its node types, and one type alone gets embeddings."""

    def __init__(self, hidden_channels=HIDDEN, out_channels=OUT, num_layers=2) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList()
        for _ in range(num_layers):
            conv = pyg.HeteroConv(
                {edge_type: pyg.SAGEConv((-1, -1), hidden_channels) for edge_type in TRIPLES}
            )
            self.convs.append(conv)
        self.lin = pyg.Linear(hidden_channels, out_channels)

    def forward(self, x_dict, edge_index_dict):
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {key: F.leaky_relu(x) for key, x in x_dict.items()}
        return self.lin(x_dict["author"])


class Mixed(torch.nn.Module):
    """The documentation's chapter on heterogeneous graphs: a convolution for each relation."""

    def __init__(self, aggr) -> None:
        super().__init__()
        self.lins = torch.nn.ModuleDict(
            {name: nn.Linear(n, HIDDEN) for name, n in NODES.items() if n}
        )
        self.conv = pyg.HeteroConv(
            {
                ("author", "to", "paper"): pyg.GATConv((-1, -1), HIDDEN, add_self_loops=False),
                ("term", "to", "paper"): pyg.GATv2Conv((-1, -1), 2, heads=2, add_self_loops=False),
                ("paper", "cites", "paper"): pyg.GCNConv(-1, HIDDEN),
                ("paper", "to", "author"): pyg.TransformerConv((-1, -1), 2, heads=2),
                ("paper", "to", "term"): pyg.GraphConv((-1, -1), HIDDEN, aggr="max"),
            },
            aggr=aggr,
        )

    def forward(self, x_dict, edge_index_dict):
        x_dict = {name: self.lins[name](x).relu_() for name, x in x_dict.items()}
        return self.conv(x_dict, edge_index_dict)


class GNN(torch.nn.Module):
    """examples/hetero/to_hetero_mag.py."""

    def __init__(self, hidden_channels=HIDDEN, out_channels=OUT) -> None:
        super().__init__()
        self.conv1 = pyg.SAGEConv((-1, -1), hidden_channels)
        self.conv2 = pyg.SAGEConv((-1, -1), hidden_channels)
        self.lin = pyg.Linear(-1, out_channels)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        x = self.dropout(x)
        x = self.conv2(x, edge_index).relu()
        return self.lin(x)


class GAT(torch.nn.Module):
    """The documentation of to_hetero: attention, with a Linear of its own for each node."""

    def __init__(self, hidden_channels=2, out_channels=OUT) -> None:
        super().__init__()
        self.conv1 = pyg.GATConv((-1, -1), hidden_channels, heads=2, add_self_loops=False)
        self.lin1 = pyg.Linear(-1, 2 * hidden_channels)
        self.conv2 = pyg.GATConv((-1, -1), out_channels, add_self_loops=False)
        self.lin2 = pyg.Linear(-1, out_channels)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index) + self.lin1(x)
        x = x.relu()
        x = self.conv2(x, edge_index) + self.lin2(x)
        return x


class HGT(torch.nn.Module):
    """examples/hetero/hgt_dblp.py."""

    def __init__(self, hidden_channels=HIDDEN, out_channels=OUT, num_heads=2, num_layers=2) -> None:
        super().__init__()
        self.lin_dict = torch.nn.ModuleDict()
        for node_type in ("author", "paper", "term"):
            self.lin_dict[node_type] = pyg.Linear(-1, hidden_channels)
        self.convs = torch.nn.ModuleList()
        for _ in range(num_layers):
            conv = pyg.HGTConv(
                hidden_channels, hidden_channels, (["author", "paper", "term"], TRIPLES), num_heads
            )
            self.convs.append(conv)
        self.lin = pyg.Linear(hidden_channels, out_channels)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {node_type: self.lin_dict[node_type](x).relu_() for node_type, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        return self.lin(x_dict["author"])


class HAN(torch.nn.Module):
    """examples/hetero/han_imdb.py."""

    def __init__(self, hidden_channels=HIDDEN, heads=2) -> None:
        super().__init__()
        widths = {name: width for name, width in NODES.items() if width}
        self.han_conv = pyg.HANConv(
            widths, hidden_channels, (list(widths), TRIPLES), heads=heads, dropout=0.6
        )
        self.lin = nn.Linear(hidden_channels, OUT)

    def forward(self, x_dict, edge_index_dict):
        out = self.han_conv(x_dict, edge_index_dict)
        return self.lin(out["paper"])


class RGCN(torch.nn.Module):
    """examples/rgcn.py, with features: the edges of all relations together."""

    def __init__(self, kind="RGCNConv", **decomposition) -> None:
        super().__init__()
        conv = getattr(pyg, kind)
        self.conv1 = conv(6, HIDDEN, 3, **decomposition)
        self.conv2 = conv(HIDDEN, OUT, 3)

    def forward(self, x, edge_index, edge_type):
        x = self.conv1(x, edge_index, edge_type).relu()
        x = self.conv2(x, edge_index, edge_type)
        return F.log_softmax(x, dim=1)


class Attention(pyg.MessagePassing):
    """A convolution of a user's own, between two node types, whose softmax weighs its messages."""

    def __init__(self, in_channels, out_channels, heads=2) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.out_channels = heads, out_channels
        self.query = nn.Linear(in_channels[1], heads * out_channels)
        self.key = nn.Linear(in_channels[0], heads * out_channels)
        self.scale = nn.Parameter(torch.ones(1, heads, 1))

    def forward(self, x, edge_index):
        query = self.query(x[1]).view(-1, self.heads, self.out_channels)
        key = self.key(x[0]).view(-1, self.heads, self.out_channels)
        return self.propagate(edge_index, query=query, key=key).flatten(1)

    def message(self, query_i, key_j, index, ptr, size_i):
        alpha = torch.tanh((query_i * key_j).sum(dim=-1))
        alpha = softmax(alpha, index, ptr, size_i)
        alpha = F.dropout(alpha, p=0.5, training=self.training)
        return key_j * alpha.unsqueeze(-1) * self.scale


class Own(torch.nn.Module):
    """Convolutions by name, outputs for some types."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Attention((NODES["author"], NODES["paper"]), 2)
        self.about = Attention((4, NODES["term"]), 2)

    def forward(self, x_dict, edge_index_dict):
        out = dict(x_dict)
        out["paper"] = self.written(
            (x_dict["author"], x_dict["paper"]), edge_index_dict["author", "to", "paper"]
        )
        out["term"] = self.about(
            (out["paper"], x_dict["term"]), edge_index_dict["paper", "to", "term"]
        )
        return {"paper": out["paper"], "term": out["term"]}


class OwnGat(pyg.GATConv):
    """GATConv with a message of one's own, which says the same."""

    def __init__(self) -> None:
        super().__init__((NODES["author"], NODES["paper"]), 3, heads=2, add_self_loops=False)

    def forward(self, x_dict, edge_index_dict):
        ends = x_dict["author"], x_dict["paper"]
        return super().forward(ends, edge_index_dict["author", "to", "paper"])

    def message(self, x_j, alpha):
        return alpha.unsqueeze(-1) * x_j


METADATA = (["author", "paper", "term"], TRIPLES)
HETERO = {
    "hetero_conv_dblp": HeteroGNN,
    **{
        f"HeteroConv {aggr}": lambda aggr=aggr: Mixed(aggr)
        for aggr in ("sum", "mean", "min", "max", "cat")
    },
    "to_hetero_mag": lambda: pyg.to_hetero(GNN(), METADATA, aggr="sum"),
    "to_hetero mean": lambda: pyg.to_hetero(GAT(), METADATA, aggr="mean"),
    "hgt_dblp": HGT,
    "han_imdb": HAN,
    "own": Own,
}
RELATIONAL = {
    "rgcn": RGCN,
    "rgcn bases": lambda: RGCN(num_bases=2),
    "rgcn blocks": lambda: RGCN(num_blocks=2),
    "fast rgcn": lambda: RGCN("FastRGCNConv", aggr="mean"),
}
