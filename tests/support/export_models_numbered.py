"""Models that tell types by numbers, as PyG's and DGL's examples write them; not shaped for export.

Each reads the nodes of all types in one tensor of IN columns.
"""

# ruff: noqa: RET504 - written as the examples are.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.pyg import pyg

IN, HIDDEN, OUT = 6, 8, 3
GRAPH = {
    "nodes": {"author": IN, "paper": IN, "venue": IN},
    "edges": ["author:writes:paper", "paper:written_by:author", "paper:cites:paper"],
}
"""No relation leads to venues."""
TYPES = RELATIONS = 3


class Numbered(torch.nn.Module):
    """PyG's to_homogeneous: a Linear for each type's number, then RGCNConv."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = pyg.HeteroLinear(IN, HIDDEN, TYPES)
        self.conv1 = pyg.RGCNConv(HIDDEN, HIDDEN, RELATIONS, num_bases=2)
        self.norm = torch.nn.BatchNorm1d(HIDDEN)
        self.conv2 = pyg.FastRGCNConv(HIDDEN, OUT, RELATIONS, root_weight=False)

    def forward(self, x, edge_index, edge_type, node_type):
        x = self.lin(x, node_type).relu()
        x = F.relu(self.norm(self.conv1(x, edge_index, edge_type)))
        x = self.conv2(x, edge_index, edge_type)
        return F.log_softmax(x, dim=-1)


class DictLinear(torch.nn.Module):
    """HeteroDictLinear, which takes dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = pyg.HeteroDictLinear(IN, HIDDEN, types=list(GRAPH["nodes"]))
        self.conv = pyg.SAGEConv(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        x_dict = self.lin(x_dict)
        edge_index = edge_index_dict["paper", "cites", "paper"]
        return self.conv(x_dict["paper"].relu(), edge_index)


class RGCN(nn.Module):
    """examples/pytorch/rgcn/entity.py of DGL, with features in the embeddings' place."""

    def __init__(self, h_dim=HIDDEN, out_dim=OUT, num_rels=RELATIONS) -> None:
        super().__init__()
        dglnn = load_dgl().nn.pytorch
        # two-layer RGCN
        self.conv1 = dglnn.RelGraphConv(
            IN, h_dim, num_rels, regularizer="basis", num_bases=2, self_loop=False
        )
        self.conv2 = dglnn.RelGraphConv(
            h_dim, out_dim, num_rels, regularizer="basis", num_bases=num_rels, self_loop=False
        )

    def forward(self, g):
        x = g.ndata["feat"]
        h = F.relu(self.conv1(g, x, g.edata["_TYPE"], g.edata["norm"]))
        h = self.conv2(g, h, g.edata["_TYPE"], g.edata["norm"])
        return h


class LinkPredict(nn.Module):
    """examples/pytorch/rgcn/link.py: blocks, loops and dropout; the norm comes as an argument."""

    def __init__(self, h_dim=HIDDEN, num_rels=RELATIONS) -> None:
        super().__init__()
        dglnn = load_dgl().nn.pytorch
        self.lin = nn.Linear(IN, h_dim)
        self.conv1 = dglnn.RelGraphConv(
            h_dim, h_dim, num_rels, "bdd", 2, self_loop=True, activation=F.relu, layer_norm=True
        )
        self.conv2 = dglnn.RelGraphConv(h_dim, OUT, num_rels, self_loop=True)
        self.dropout = nn.Dropout(0.2)

    def forward(self, g, x, etypes, norm):
        x = self.lin(x)
        h = self.conv1(g, x, etypes, norm)
        h = self.dropout(h)
        # Its own edges have no norm here.
        return self.conv2(g, h, etypes, None)


class HGT(nn.Module):
    """HGTConv on a homogeneous graph, as its documentation has it."""

    def __init__(self, use_norm=True) -> None:
        super().__init__()
        dglnn = load_dgl().nn.pytorch
        self.adapt = dglnn.TypedLinear(IN, HIDDEN, TYPES)
        self.gcs = nn.ModuleList(
            [
                dglnn.HGTConv(HIDDEN, 4, 2, TYPES, RELATIONS, use_norm=use_norm),
                dglnn.HGTConv(HIDDEN, 3, 2, TYPES, RELATIONS),
            ]
        )
        self.out = nn.Linear(6, OUT)

    def forward(self, g, h, ntype, etype):
        h = F.gelu(self.adapt(h, ntype, sorted_by_type=True))
        for conv in self.gcs:
            h = conv(g, h, ntype, etype, presorted=True)
        return self.out(h)


class Entities(nn.Module):
    """entity.py as it is: an embedding for each node of a graph whose types do not matter."""

    def __init__(self, num_nodes=47) -> None:
        super().__init__()
        self.emb = nn.Embedding(num_nodes, IN)
        self.conv = load_dgl().nn.pytorch.RelGraphConv(IN, OUT, RELATIONS, self_loop=False)

    def forward(self, g):
        return self.conv(g, self.emb.weight, g.edata["_TYPE"], g.edata["norm"])


class OnTogether(nn.Module):
    """What no program can say of all types together: a mistake for each way of use."""

    def __init__(self, way="conv", relations=RELATIONS) -> None:
        super().__init__()
        dglnn = load_dgl().nn.pytorch
        self.way = way
        self.rel = dglnn.RelGraphConv(IN, IN, relations)
        self.conv = dglnn.GraphConv(IN, IN)
        self.lin = dglnn.TypedLinear(IN, IN, TYPES)

    def forward(self, g, x, etypes):
        fn = load_dgl().function
        if self.way == "conv":
            x = self.conv(g, x)
        elif self.way == "update":
            g.update_all(fn.copy_u("_TYPE", "m"), fn.sum("m", "h"))
        elif self.way == "norm":
            return self.rel(g, x, etypes, g.edata["w"] * 2)
        elif self.way == "types":
            etypes = etypes * 0
        elif self.way == "linear":
            x = self.lin(x, etypes)
        elif self.way == "mean":
            x = x - x.mean(dim=0)
        return self.rel(g, x, etypes)


PYG = {"numbered": Numbered, "dict linear": DictLinear}
DGL = {"entity": RGCN, "link": LinkPredict, "hgt": HGT, "hgt plain": lambda: HGT(use_norm=False)}
