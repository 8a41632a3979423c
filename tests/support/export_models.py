"""Models as the examples of their libraries write them; nothing here is shaped for export.

Each is made with few columns: IN of the features, OUT of the result. Imported as a user's file is,
so it imports what such a file imports.
"""

# ruff: noqa: RET504 - written as the examples are.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential

from tests.support.pyg import pyg

IN, HIDDEN, OUT = 6, 8, 3


class GCN(torch.nn.Module):
    """examples/gcn.py of PyG."""

    def __init__(self, in_channels: int = IN, hidden_channels: int = HIDDEN) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(in_channels, hidden_channels, cached=True)
        self.conv2 = pyg.GCNConv(hidden_channels, OUT, cached=True)

    def forward(self, x, edge_index, edge_weight=None):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv2(x, edge_index, edge_weight)
        return x


class GAT(torch.nn.Module):
    """examples/gat.py of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GATConv(IN, 4, heads=3, dropout=0.6)
        self.conv2 = pyg.GATConv(4 * 3, OUT, heads=2, concat=False, dropout=0.6)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        x = self.conv2(x, edge_index)
        return F.log_softmax(x, dim=-1)


class SAGE(torch.nn.Module):
    """examples/reddit.py of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList()
        self.convs.append(pyg.SAGEConv(IN, HIDDEN))
        self.convs.append(pyg.SAGEConv(HIDDEN, OUT))

    def forward(self, x, edge_index):
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = x.relu_()
                x = F.dropout(x, p=0.5, training=self.training)
        return x


class PPI(torch.nn.Module):
    """examples/ppi.py of PyG: attention beside linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GATConv(IN, 4, heads=2)
        self.lin1 = torch.nn.Linear(IN, 2 * 4)
        self.conv2 = pyg.GATConv(2 * 4, OUT, heads=3, concat=False)
        self.lin2 = torch.nn.Linear(2 * 4, OUT)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index) + self.lin1(x))
        x = self.conv2(x, edge_index) + self.lin2(x)
        return x


class GIN(torch.nn.Module):
    """examples/mutag_gin.py of PyG, without the pooling of whole graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GINConv(Sequential(Linear(IN, HIDDEN), ReLU(), Linear(HIDDEN, HIDDEN)))
        self.bn1 = BatchNorm1d(HIDDEN)
        nn2 = Sequential(Linear(HIDDEN, HIDDEN), ReLU(), Linear(HIDDEN, HIDDEN))
        self.conv2 = pyg.GINConv(nn2, train_eps=True)
        self.bn2 = BatchNorm1d(HIDDEN)
        self.fc1 = Linear(HIDDEN, HIDDEN)
        self.fc2 = Linear(HIDDEN, OUT)

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        x = self.bn1(x)
        x = F.relu(self.conv2(x, edge_index))
        x = self.bn2(x)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.fc2(x)
        return F.log_softmax(x, dim=-1)


class APPNP(torch.nn.Module):
    """benchmark/citation/appnp.py of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1 = Linear(IN, HIDDEN)
        self.lin2 = Linear(HIDDEN, OUT)
        self.prop1 = pyg.APPNP(3, 0.1)

    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        x = F.dropout(x, p=0.5, training=self.training)
        x = F.relu(self.lin1(x))
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.lin2(x)
        x = self.prop1(x, edge_index)
        return F.log_softmax(x, dim=1)


class SGC(torch.nn.Module):
    """benchmark/citation/sgc.py of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.SGConv(IN, OUT, K=2, cached=True)

    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        x = self.conv1(x, edge_index)
        return F.log_softmax(x, dim=1)


class EdgeWeighted(pyg.MessagePassing):
    """A convolution of a user's own."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="mean")
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels))

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j

    def update(self, aggr_out):
        return aggr_out + self.bias


class Mixed(torch.nn.Module):
    """What users write around convolutions: mixtures, residuals, loops, functions in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = EdgeWeighted(IN, IN)
        self.norm = torch.nn.LayerNorm(IN)
        self.act = torch.nn.PReLU()
        self.shares = torch.nn.Parameter(torch.zeros(3))
        self.scale = torch.nn.Parameter(torch.ones(IN))
        self.out = torch.nn.Linear(2 * IN, OUT)

    def forward(self, x, edge_index, edge_weight):
        shares = torch.softmax(self.shares, dim=0)
        total, h = shares[0] * x, x
        for hop in range(1, 3):
            h = F.leaky_relu(self.conv(h, edge_index, edge_weight), 0.1, inplace=True)
            total = total + shares[hop] * h
        total += x
        gated = 1 - 2 * self.act(self.norm(total)) / 3 * self.scale
        both = torch.stack([gated, h]).mean(dim=0)
        return F.normalize(self.out(torch.cat([both, total], dim=-1)), dim=1)


class EdgeConv(pyg.MessagePassing):
    """The documentation's chapter on creating message passing networks."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="max")
        self.mlp = Sequential(
            Linear(2 * in_channels, out_channels), ReLU(), Linear(out_channels, out_channels)
        )

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        tmp = torch.cat([x_i, x_j - x_i], dim=1)
        return self.mlp(tmp)


class Edges(torch.nn.Module):
    """Two of them, and functions of rows that no step has a name for."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = EdgeConv(IN, HIDDEN)
        self.conv2 = EdgeConv(HIDDEN, 2 * OUT)

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index)
        h = torch.where(h > 0, h, h.abs().clamp(max=2).sqrt())
        value, gate = self.conv2(h, edge_index).chunk(2, dim=1)
        value = value * torch.sigmoid(gate[:, :1]) + h.max(dim=1, keepdim=True)[0]
        return value / (1e-6 + value.pow(2).sum(dim=-1, keepdim=True).sqrt())


class Norms(torch.nn.Module):
    """Norms by statistics over all nodes, and what is made of them, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(IN, HIDDEN)
        self.norms = torch.nn.ModuleList(
            [
                pyg.GraphNorm(HIDDEN),
                pyg.InstanceNorm(HIDDEN, affine=True),
                pyg.LayerNorm(HIDDEN),
                pyg.PairNorm(scale=0.7),
                pyg.MeanSubtractionNorm(),
                pyg.GraphSizeNorm(),
                pyg.InstanceNorm(HIDDEN, track_running_stats=True),
                pyg.DiffGroupNorm(HIDDEN, groups=2, track_running_stats=False),
                BatchNorm1d(HIDDEN, track_running_stats=False),
                pyg.PairNorm(scale_individually=True),
            ]
        )
        self.last = pyg.SAGEConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        for norm in self.norms:
            x = norm(x) + 0.5 * x.tanh()
        return self.last(x, edge_index)


def jk(mode: str) -> nn.Module:
    """torch_geometric.nn.models with JumpingKnowledge."""
    return pyg.GCN(IN, HIDDEN, 2, OUT, norm="batch_norm", jk=mode, dropout=0.5)


def sequential() -> nn.Module:
    """The documentation of torch_geometric.nn.Sequential."""
    return pyg.Sequential(
        "x, edge_index",
        [
            (torch.nn.Dropout(p=0.5), "x -> x"),
            (pyg.SAGEConv(IN, HIDDEN, aggr="max"), "x, edge_index -> x1"),
            ReLU(inplace=True),
            (pyg.GATv2Conv(HIDDEN, 4, heads=2), "x1, edge_index -> x2"),
            ReLU(inplace=True),
            (lambda x1, x2: [x1, x2], "x1, x2 -> xs"),
            (pyg.JumpingKnowledge("cat", HIDDEN, num_layers=2), "xs -> x"),
            Linear(2 * HIDDEN, OUT),
        ],
    )


PYG = {
    "gcn": GCN,
    "gat": GAT,
    "sage": SAGE,
    "ppi": PPI,
    "gin": GIN,
    "appnp": APPNP,
    "sgc": SGC,
    "sequential": sequential,
    "own messages": Mixed,
    "edge conv": Edges,
    "norms": Norms,
    "models.GCN jk=cat": lambda: jk("cat"),
    "models.GCN jk=max": lambda: jk("max"),
    "models.GraphSAGE": lambda: pyg.GraphSAGE(IN, HIDDEN, 2, OUT, act="gelu"),
    "models.GIN": lambda: pyg.GIN(IN, HIDDEN, 2, OUT, norm="batch_norm", jk="last"),
    "models.GAT": lambda: pyg.GAT(IN, HIDDEN, 2, OUT, heads=2, v2=True, act="elu"),
}
