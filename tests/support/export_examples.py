"""Whole models of PyG's examples, and sums over edges by torch's own functions, as users do."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

IN, OUT = 5, 3


class DNA(nn.Module):
    """examples/dna.py: attention over the results of earlier layers, at each edge."""

    def __init__(self, hidden=8, layers=3):
        super().__init__()
        self.hidden = hidden
        self.lin1 = nn.Linear(IN, hidden)
        convs = [pyg.DNAConv(hidden, heads=2, groups=4, dropout=0.8) for _ in range(layers)]
        self.convs = nn.ModuleList(convs)
        self.lin2 = nn.Linear(hidden, OUT)

    def forward(self, x, edge_index):
        x = F.dropout(F.relu(self.lin1(x)), p=0.5, training=self.training)
        x_all = x.view(-1, 1, self.hidden)
        for conv in self.convs:
            x = F.relu(conv(x_all, edge_index))
            x_all = torch.cat([x_all, x.view(-1, 1, self.hidden)], dim=1)
        x = F.dropout(x_all[:, -1], p=0.5, training=self.training)
        return torch.log_softmax(self.lin2(x), dim=1)


class Block(nn.Module):
    """Of examples/rev_gnn.py."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, elementwise_affine=True)
        self.conv = pyg.SAGEConv(channels, channels)

    def forward(self, x, edge_index, dropout_mask=None):
        x = self.norm(x).relu()
        if self.training and dropout_mask is not None:
            x = x * dropout_mask
        return self.conv(x, edge_index)


class RevGNN(nn.Module):
    """examples/rev_gnn.py: layers that are undone in training, group by group."""

    def __init__(self, hidden=8, groups=2):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(IN, hidden), nn.Linear(hidden, OUT)
        self.norm = nn.LayerNorm(hidden, elementwise_affine=True)
        blocks = [Block(hidden // groups) for _ in range(2)]
        self.convs = nn.ModuleList(pyg.GroupAddRev(one, num_groups=groups) for one in blocks)

    def forward(self, x, edge_index):
        x, mask = self.lin1(x), None
        for conv in self.convs:
            x = conv(x, edge_index, mask)
        return self.lin2(self.norm(x).relu())


class ClusterGCN(nn.Module):
    """Layers with a larger share for each node's own row, each behind a norm over all nodes."""

    def __init__(self):
        super().__init__()
        convs = [pyg.ClusterGCNConv(IN, 6), pyg.ClusterGCNConv(6, OUT, diag_lambda=0.5)]
        self.convs, self.norm = nn.ModuleList(convs), pyg.PairNorm()

    def forward(self, x, edge_index):
        return self.convs[1](self.norm(self.convs[0](x, edge_index)).relu(), edge_index)


class Molecules(nn.Module):
    """A matrix for each number of in-edges."""

    def __init__(self):
        super().__init__()
        self.conv1 = pyg.MFConv(IN, 6, max_degree=4)
        self.conv2 = pyg.MFConv(6, OUT, max_degree=2, aggr="max", bias=False)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class SIGN(nn.Module):
    """examples/sign.py, with what its transform SIGN computes before training in forward."""

    def __init__(self, hops=2):
        super().__init__()
        self.hops = hops
        self.lins = nn.ModuleList(nn.Linear(IN, 8) for _ in range(hops + 1))
        self.lin = nn.Linear((hops + 1) * 8, OUT)

    def forward(self, x, edge_index):
        row, col = edge_index
        ones = x.new_ones(edge_index.size(1))
        deg = x.new_zeros(x.size(0)).scatter_add_(0, col, ones)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        weight = (deg_inv_sqrt[row] * deg_inv_sqrt[col]).unsqueeze(-1)
        xs = [x]
        for _ in range(self.hops):
            message = weight * xs[-1][row]
            xs.append(torch.zeros_like(x).index_add(0, col, message))
        hs = [lin(one).relu() for one, lin in zip(xs, self.lins, strict=True)]
        return self.lin(torch.cat(hs, dim=-1)).log_softmax(dim=-1)


class Smooth(nn.Module):
    """examples/correct_and_smooth.py: an MLP whose classes are propagated."""

    def __init__(self):
        super().__init__()
        self.mlp = pyg.MLP([IN, 16, OUT], dropout=0.5, norm="batch_norm", act_first=True)
        self.smooth = pyg.LabelPropagation(num_layers=3, alpha=0.8)

    def forward(self, x, edge_index, edge_weight):
        y = self.mlp(x).softmax(dim=-1)
        return self.smooth(y, edge_index, edge_weight=edge_weight)


class LinkPredictor(nn.Module):
    """examples/link_pred.py: it is encode that embeds."""

    def __init__(self, in_channels=IN, hidden_channels=8, out_channels=OUT):
        super().__init__()
        self.conv1 = pyg.GCNConv(in_channels, hidden_channels)
        self.conv2 = pyg.GCNConv(hidden_channels, out_channels)

    def encode(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class Kipf(nn.Module):
    """The layers of tkipf/pygcn, over a sparse matrix; the second multiplies in another way."""

    def __init__(self, way="spmm"):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(IN, 6)), nn.Parameter(torch.rand(6))
        self.lin, self.way = nn.Linear(6, OUT), way

    def forward(self, x, adj):
        support = torch.mm(x, self.weight)
        h = F.dropout(F.relu(torch.spmm(adj, support) + self.bias), training=self.training)
        return F.log_softmax(getattr(self, self.way)(adj.float(), self.lin(h)), dim=1)

    def spmm(self, adj, h):
        return torch.sparse.mm(adj, h)

    def operator(self, adj, h):
        return adj @ h

    def method(self, adj, h):
        return adj.matmul(h)

    def turned(self, adj, h):
        return adj.t() @ h


class Sums(nn.Module):
    """torch's functions that add rows of edges to rows of nodes, by one of several ways."""

    def __init__(self, way):
        super().__init__()
        self.lin, self.way = nn.Linear(IN, OUT), way

    def forward(self, x, edge_index, edge_weight):
        h, (row, col) = self.lin(x), edge_index
        message, index = h[row] * edge_weight.view(-1, 1), col.unsqueeze(-1).expand(-1, OUT)
        out = getattr(self, self.way)(h, message, index, col)
        count = torch.bincount(col, minlength=x.size(0)) + torch.bincount(row, None, x.size(0))
        total = torch.zeros(x.size(0), dtype=x.dtype).index_add(0, row, edge_weight)
        return out / (count + total + 1).unsqueeze(-1)

    def in_place(self, h, message, _index, col):
        out = torch.zeros(h.size(0), OUT, dtype=h.dtype)
        out.index_add_(0, col, message, alpha=0.5)
        return out

    def onto_rows(self, h, message, index, _col):
        return h.scatter_add(0, index, message)

    def onto_rows_in_place(self, h, message, _index, col):
        own = h.clone()
        own.scatter_add_(0, col.view(-1, 1).repeat(1, OUT), message)
        return own + h

    def largest(self, h, message, index, _col):
        return h.new_zeros(h.shape).scatter_reduce(0, index, message, "amax", include_self=False)

    def mean(self, h, message, index, _col):
        out = torch.zeros(h.shape).to(h)
        return out.scatter_reduce_(0, index, message, reduce="mean", include_self=False)


EXAMPLES = {
    "dna": DNA,
    "rev_gnn": RevGNN,
    "cluster_gcn": ClusterGCN,
    "molecules": Molecules,
    "sign": SIGN,
    "correct_and_smooth": Smooth,
    **{
        f"sums {way}": (lambda way=way: Sums(way))
        for way in ("in_place", "onto_rows", "onto_rows_in_place", "largest", "mean")
    },
}
