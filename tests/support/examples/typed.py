"""PyG's examples of graphs with several node types and relations.

The graph is that of ``tests.support.typed_world``, so that the programs also run on grids.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.examples.case import OUT
from tests.support.examples.pyg import HIDDEN, example
from tests.support.pyg import pyg

NODES = {"user": 7, "item": 5, "tag": 4}
TRIPLES = [
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("user", "follows", "user"),
    ("item", "has", "tag"),
    ("tag", "of", "item"),
]
METADATA = (list(NODES), TRIPLES)
GRAPH = {"nodes": NODES, "edges": [":".join(triple) for triple in TRIPLES]}
FOLLOWS = {"nodes": {"user": NODES["user"]}, "edges": ["user:follows:user"]}
"""A graph of one node type, whose edges have their relations' numbers."""


def called(module, method="__call__"):
    """A module after its first call, by which lazy layers get their widths."""
    x = {name: torch.zeros(2, width) for name, width in NODES.items()}
    edges = {triple: torch.zeros(2, 1, dtype=torch.int64) for triple in TRIPLES}
    with torch.no_grad():
        getattr(module, method)(x, edges)
    return module


def heterogeneous(skip=False):
    return called(pyg.to_hetero(Homogeneous(skip), METADATA, aggr="sum"))


class BipartiteUsers(nn.Module):
    """Users by what they buy, after items by who bought them."""

    def __init__(self):
        super().__init__()
        self.conv1 = pyg.SAGEConv((7, 5), HIDDEN)
        self.conv2 = pyg.SAGEConv((5, 7), HIDDEN)
        self.lin1, self.lin2 = nn.Linear(HIDDEN, OUT), nn.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        items, users = x_dict["item"], x_dict["user"]
        item = self.conv1((users, items), edge_index_dict["user", "buys", "item"]).relu()
        user = self.conv2((items, users), edge_index_dict["item", "bought_by", "user"]).relu()
        return {"item": self.lin1(item), "user": self.lin2(user)}


class Homogeneous(nn.Module):
    """Two layers, made heterogeneous by to_hetero."""

    def __init__(self, skip=False):
        super().__init__()
        self.conv1 = pyg.SAGEConv((-1, -1), HIDDEN)
        self.conv2 = pyg.SAGEConv((-1, -1), HIDDEN)
        self.lin, self.skip = pyg.Linear(-1, HIDDEN), skip

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        y = self.conv2(x, edge_index)
        return y + self.lin(x) if self.skip else self.lin(y.relu())


class Sampled(nn.Module):
    """HeteroConv in layers, and one type's rows."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            pyg.HeteroConv({edge: pyg.SAGEConv((-1, -1), HIDDEN) for edge in TRIPLES}, aggr="sum")
            for _ in range(2)
        )
        self.lin = pyg.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {name: F.leaky_relu(x) for name, x in x_dict.items()}
        return self.lin(x_dict["user"])


class HAN(nn.Module):
    """Attention over relations."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.HANConv(dict(NODES), HIDDEN, METADATA, heads=2, dropout=0.6)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        return self.lin(self.conv(x_dict, edge_index_dict)["item"])


class HGT(nn.Module):
    """Attention with weights of each type and relation."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleDict({name: nn.Linear(width, HIDDEN) for name, width in NODES.items()})
        self.conv, self.lin = pyg.HGTConv(HIDDEN, HIDDEN, METADATA, 2), nn.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {name: self.lins[name](x).relu_() for name, x in x_dict.items()}
        return self.lin(self.conv(x_dict, edge_index_dict)["user"])


class DMGI(nn.Module):
    """A convolution for each of several meta-paths, which are relations of the graph."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(7, OUT) for _ in range(2)])

    def forward(self, x_dict, edge_index_dict):
        edge_index = edge_index_dict["user", "follows", "user"]
        return torch.stack([conv(x_dict["user"], edge_index).relu() for conv in self.convs]).mean(0)


class Recommender(nn.Module):
    """Links between users and items: the encoder gives what the decoder multiplies."""

    def __init__(self):
        super().__init__()
        self.encoder = heterogeneous()

    def encode(self, x_dict, edge_index_dict):
        return self.encoder(x_dict, edge_index_dict)


class RGCN(nn.Module):
    """Weights of relations, which edges have as numbers."""

    def __init__(self, conv="RGCNConv"):
        super().__init__()
        self.conv1 = getattr(pyg, conv)(7, HIDDEN, 1, num_bases=1)
        self.conv2 = getattr(pyg, conv)(HIDDEN, OUT, 1, num_bases=1)

    def forward(self, x, edge_index, edge_type):
        x = F.relu(self.conv1(x, edge_index, edge_type))
        return F.log_softmax(self.conv2(x, edge_index, edge_type), dim=1)


class RGAT(nn.Module):
    """Attention over edges of several relations."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = pyg.RGATConv(7, HIDDEN, 1), nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_type):
        return self.lin(self.conv(x, edge_index, edge_type).relu()).log_softmax(dim=-1)


class SignedGCN(nn.Module):
    """Positive and negative edges as two relations."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.SignedConv(7, OUT, first_aggr=True)

    def forward(self, x, pos_edge_index, neg_edge_index):
        return self.conv(x, pos_edge_index, neg_edge_index)


TYPED = {"options": {"graph": GRAPH}, "line": "`--graph job.yaml`"}
NUMBERED = {"options": {"graph": FOLLOWS}, "line": "`--graph job.yaml`"}

EXAMPLES = [
    example("examples/hetero/bipartite_sage.py", BipartiteUsers, **TYPED),
    example("examples/hetero/dmgi_unsup.py", DMGI, **TYPED),
    example("examples/hetero/han_imdb.py", HAN, **TYPED),
    example("examples/hetero/hetero_conv_dblp.py", lambda: called(Sampled()), **TYPED),
    example("examples/hetero/hetero_link_pred.py", lambda: heterogeneous(skip=True), **TYPED),
    example("examples/hetero/hgt_dblp.py", HGT, **TYPED),
    example(
        "examples/hetero/recommender_system.py",
        Recommender,
        method="encode",
        options={"graph": GRAPH},
        line="`.encode`, `--graph job.yaml`",
    ),
    example("examples/hetero/to_hetero_mag.py", heterogeneous, **TYPED),
    example("examples/rgat.py", RGAT, **NUMBERED),
    example("examples/rgcn.py", RGCN, **NUMBERED),
    example("examples/rgcn.py FastRGCNConv", lambda: RGCN("FastRGCNConv"), **NUMBERED),
    example(
        "examples/signed_gcn.py",
        SignedGCN,
        refused="pairs of nodes to score",
        options={"width": 7},
        line="takes two sets of edges; make them two relations, each with its convolution",
    ),
]
