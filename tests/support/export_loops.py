"""Modules that change edges and count degrees in their own code, as PyG's documentation does."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    degree,
    remove_self_loops,
    scatter,
    softmax,
)

from tests.support.pyg import pyg


class GCNConv(MessagePassing):
    """Of 'Creating Message Passing Networks', line by line."""

    def __init__(self, in_channels=5, out_channels=3):
        super().__init__(aggr="add")
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self):
        self.lin.reset_parameters()
        self.bias.data.zero_()

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        out = self.propagate(edge_index, x=x, norm=norm)
        return out + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class EdgeConv(MessagePassing):
    """Of the same page."""

    def __init__(self):
        super().__init__(aggr="max")
        self.mlp = nn.Sequential(nn.Linear(10, 3), nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        tmp = torch.cat([x_i, x_j - x_i], dim=1)
        return self.mlp(tmp)


class PointNet(MessagePassing):
    """Of 'Point Cloud Processing': positions are the first columns."""

    def __init__(self):
        super().__init__(aggr="max")
        self.mlp = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 3))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, h=x[:, 3:], pos=x[:, :3])

    def message(self, h_j, pos_j, pos_i):
        return self.mlp(torch.cat([h_j, pos_j - pos_i], dim=-1))


def more(change, edge_index, edge_attr, fill, count):
    """With self-loops, added to all nodes or to the remaining ones."""
    if change == "add":
        return add_self_loops(edge_index, edge_attr, fill_value=fill, num_nodes=count)
    return add_remaining_self_loops(edge_index, edge_attr, fill, count)


class Changed(GCNConv):
    """Self-loops removed, added, or both, with weights or without."""

    def __init__(self, *changes, weighted=False, reduce="add"):
        super().__init__()
        self.changes, self.weighted = changes, weighted
        self.aggr_module = pyg.SAGEConv(5, 3, aggr=reduce).aggr_module

    def forward(self, x, edge_index, edge_weight=None):
        edge_weight = edge_weight if self.weighted else None
        for change in self.changes:
            if change == "remove":
                edge_index, edge_weight = remove_self_loops(edge_index, edge_weight)
            else:
                edge_index, edge_weight = more(change, edge_index, edge_weight, 2.0, x.size(0))
        row, col = edge_index[0], edge_index[1]
        both = degree(col, x.size(0), dtype=x.dtype)[col] + degree(row, x.size(0))[row]
        if edge_weight is None:
            edge_weight = torch.ones(edge_index.size(1))
        return self.propagate(edge_index, x=self.lin(x), norm=edge_weight / both) + self.bias


class Features(nn.Module):
    """New self-loops have features: of the graph's own, by one of PyG's words or by a number."""

    def __init__(self, *changes, fill=0.5):
        super().__init__()
        self.changes, self.fill = changes, fill
        self.conv = pyg.GINEConv(nn.Linear(5, 3), edge_dim=3)

    def forward(self, x, edge_index, edge_attr):
        for change in self.changes:
            if change == "remove":
                edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
            else:
                edge_index, edge_attr = more(change, edge_index, edge_attr, self.fill, x.size(0))
        return self.conv(x, edge_index, edge_attr)


class Held(GCNConv):
    """PyG's functions by other ways than their names: a dict, an attribute, a partial."""

    def __init__(self):
        super().__init__()
        self.changes = {"add": add_self_loops}
        self.share, self.degree = softmax, partial(degree, dtype=torch.float64)
        self.att = nn.Linear(6, 1)

    def forward(self, x, edge_index):
        edge_index, _ = self.changes["add"](edge_index, num_nodes=x.size(0))
        norm = self.degree(edge_index[1], x.size(0)).view(-1, 1)
        return self.propagate(edge_index, x=self.lin(x)) / norm

    def message(self, x_i, x_j, index):
        return self.share(self.att(torch.cat([x_i, x_j], dim=-1)), index) * x_j


class Weighing(GCNConv):
    """Weights of new self-loops beside those of others, in a softmax and in sums at both ends."""

    def forward(self, x, edge_index, edge_weight):
        n = x.size(0)
        edge_index, w = remove_self_loops(edge_index, edge_weight)
        edge_index, w = add_self_loops(edge_index, w, fill_value=0.5, num_nodes=n)
        (row, col), h = edge_index, self.lin(x)
        share = softmax(F.leaky_relu(h[row].sum(-1) + h[col].sum(-1)), col, num_nodes=n)
        out = scatter((share * w).view(-1, 1) * h[row], col, 0, n)
        return out / (scatter(w, row, 0, n) + scatter(w, col, 0, n)).view(-1, 1)


class Scaled(GCNConv):
    """Shares of heads that are multiplied before they get columns."""

    def __init__(self):
        super().__init__(out_channels=6)
        self.att, self.scale = nn.Linear(12, 2), nn.Parameter(torch.rand(1, 2))

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=self.lin(x), w=edge_weight) + self.bias

    def message(self, x_i, x_j, w, index):
        share = softmax(self.att(torch.cat([x_i, x_j], dim=-1)), index)
        share = (share * w.unsqueeze(-1) * self.scale).unsqueeze(-1)
        return (share * x_j.view(-1, 2, 3)).flatten(1)


class Normed(GCNConv):
    """PyG's gcn_norm, called by a user."""

    def __init__(self, **how):
        super().__init__()
        self.how = how

    def forward(self, x, edge_index, edge_weight=None):
        edge_index, norm = gcn_norm(edge_index, edge_weight, x.size(0), dtype=x.dtype, **self.how)
        return self.propagate(edge_index, x=self.lin(x), norm=norm) + self.bias


class Inverse(GCNConv):
    """One divided by a degree, which is infinite where no edge reads it."""

    def forward(self, x, edge_index):
        _, col = edge_index
        norm = 1.0 / degree(col, x.size(0), dtype=x.dtype)
        return self.propagate(edge_index, x=self.lin(x), norm=norm[col]) + self.bias


class Attention(nn.Module):
    """Without a MessagePassing: rows at the ends, softmax and scatter."""

    def __init__(self):
        super().__init__()
        self.lin, self.att = nn.Linear(5, 3), nn.Linear(6, 1)

    def forward(self, x, edge_index):
        edge_index, _ = remove_self_loops(edge_index)
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        h, (row, col) = self.lin(x), edge_index
        score = F.leaky_relu(self.att(torch.cat([h[row], h.index_select(0, col)], dim=-1)))
        share = softmax(score, col, num_nodes=x.size(0))
        return scatter(share * h[row], col, dim=0, dim_size=x.size(0), reduce="sum")


class Scattered(nn.Module):
    """What arrives, reduced, divided by sums of weights and of ones at either end."""

    def __init__(self, reduce):
        super().__init__()
        self.lin, self.reduce = nn.Linear(5, 3), reduce

    def forward(self, x, edge_index, edge_weight):
        (row, col), h, n = edge_index, self.lin(x), x.size(0)
        out = scatter(h[row] * h[col].relu(), col, 0, n, self.reduce)
        ones = torch.ones(edge_index.size(1))
        into, out_of = scatter(edge_weight, col, 0, n), scatter(edge_weight, row, 0, n)
        total = into + out_of + scatter(ones, col, 0, n) + scatter(ones, row, 0, n) + 1
        return h + out / total.view(-1, 1)


class OwnAggregate(GCNConv):
    """An aggregate of its own, as the documentation spells it."""

    def aggregate(self, inputs, index, dim_size):
        return scatter(inputs, index, dim=self.node_dim, dim_size=dim_size, reduce="mean").tanh()


class OwnByPyg(GCNConv):
    """One that asks PyG's."""

    def aggregate(self, inputs, index, ptr=None, dim_size=None):
        return super().aggregate(inputs, index, ptr, dim_size).tanh()


class Known(nn.Module):
    """A convolution of the library's on edges that were changed before it."""

    def __init__(self, kind, change="add"):
        super().__init__()
        self.conv, self.change = getattr(pyg, kind)(5, 3), change

    def forward(self, x, edge_index):
        edge_index, _ = more(self.change, edge_index, None, 1.0, x.size(0))
        return self.conv(x, edge_index)


class Weighted(nn.Module):
    """A convolution of the library's on weights that were computed."""

    def __init__(self, kind, **how):
        super().__init__()
        self.conv = getattr(pyg, kind)(5, 3, **how)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight.sigmoid() * 2.0)


_CHANGES = (("remove",), ("add",), ("remaining",), ("remove", "add"), ("add", "remove"))
CASES = {
    "GCNConv": GCNConv,
    "EdgeConv": EdgeConv,
    "PointNet": PointNet,
    **{
        f"{' '.join(changes)} {reduce}": (
            lambda changes=changes, reduce=reduce: Changed(*changes, reduce=reduce)
        )
        for changes in _CHANGES
        for reduce in ("add", "max")
    },
    **{
        f"weighted {' '.join(changes)} {reduce}": (
            lambda changes=changes, reduce=reduce: Changed(*changes, weighted=True, reduce=reduce)
        )
        for changes in (
            ("remove",),
            ("add",),
            ("remaining",),
            ("remove", "add"),
            ("remove", "remaining"),
        )
        for reduce in ("add", "std", "softmax")
    },
    "held": Held,
    "weighing": Weighing,
    "scaled": Scaled,
    "norm": Normed,
    "norm improved": lambda: Normed(improved=True),
    "norm of the edges": lambda: Normed(add_self_loops=False),
    "inverse": Inverse,
    "attention": Attention,
    **{f"scatter {how}": (lambda how=how: Scattered(how)) for how in ("sum", "mean", "max", "min")},
    "aggregate": OwnAggregate,
    "aggregate of PyG": OwnByPyg,
    **{
        f"known {kind}": (lambda kind=kind: Known(kind))
        for kind in ("GCNConv", "SAGEConv", "GATConv", "TransformerConv", "SuperGATConv")
    },
    "known once": lambda: Known("GraphConv", "remaining"),
    "weights computed": lambda: Weighted("GraphConv"),
    "weights computed of GCN": lambda: Weighted("GCNConv", add_self_loops=False),
}
FEATURES = {
    "add": lambda: Features("add"),
    "add mean": lambda: Features("add", fill="mean"),
    "add none": lambda: Features("add", fill=None),
    "replace": lambda: Features("remove", "add", fill="max"),
    "remove": lambda: Features("remove"),
}
