"""Decoders of pairs, as the libraries' link predictors and people write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

WIDTH, OUT = 5, 6


class Net(nn.Module):
    """An encoder with many decoders."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(WIDTH, OUT)
        self.mlp = nn.Sequential(
            nn.Linear(2 * OUT, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)
        )
        self.relation = nn.Parameter(torch.randn(OUT))
        self.predictor = Predictor()

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)

    def dot(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)

    def cosine(self, z, edge_index):
        return F.cosine_similarity(z[edge_index[0]], z[edge_index[1]], dim=-1)

    def concatenated(self, z, edge_index):
        row, col = edge_index
        return self.mlp(torch.cat([z[row], z[col]], dim=-1)).view(-1)

    def dist_mult(self, z_user, z_item, edge_label_index):
        users, items = edge_label_index
        return (z_user[users] * self.relation * z_item[items]).sum(-1).sigmoid()

    def rows(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j], -1))

    def two_numbers(self, z, edge_index):
        ends = z[edge_index[0]], z[edge_index[1]]
        return torch.stack([(ends[0] * ends[1]).sum(-1), (ends[0] - ends[1]).norm(dim=-1)], -1)

    def all_nodes(self, z, edge_index):
        h = self.mlp[0](torch.cat([z, z], -1))
        return (h[edge_index[0]] * h[edge_index[1]]).sum(-1)

    def no_pairs(self, z, edge_index):
        return z

    def alone(self, z):
        return z


class Predictor(nn.Module):
    """OGB's link predictor: an MLP of the product of both rows."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(OUT, OUT), nn.Linear(OUT, 1)])

    def forward(self, x_i, x_j):
        x = x_i * x_j
        x = F.dropout(self.lins[0](x).relu(), p=0.5, training=self.training)
        return torch.sigmoid(self.lins[1](x))


class Edges(nn.Module):
    """DGL's dot predictor."""

    def forward(self, g, h):
        import dgl.function as fn

        with g.local_scope():
            g.ndata["h"] = h
            g.apply_edges(fn.u_dot_v("h", "h", "score"))
            return g.edata["score"][:, 0]


DECODERS = ("dot", "cosine", "concatenated", "dist_mult", "rows", "two_numbers", "predictor")
