"""Models with statistics over all nodes and constants of their own; not shaped for export."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.export_models import HIDDEN, IN, OUT
from tests.support.pyg import pyg


class Centred(nn.Module):
    """Centring, standardising and scaling as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.SAGEConv(IN, HIDDEN), pyg.SAGEConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        x = (x - x.mean(dim=0, keepdim=True)) / (x.std(dim=0) + 1e-6)
        x = self.conv1(x, edge_index)
        x = x - x.mean(0)
        x = x / torch.sqrt(x.var(dim=0, unbiased=False) + 1e-5)
        x = x + x / (x.norm(p=2, dim=0, keepdim=True) + 1e-6)
        x = F.normalize(self.conv2(x, edge_index), dim=0)
        x = x + x.mean(0)
        return x / torch.linalg.norm(x, dim=0)


class VirtualNode(nn.Module):
    """OGB's virtual node: what all nodes come to goes through an MLP, and back to each."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(IN, IN), pyg.GCNConv(IN, IN)])
        self.mlp = nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, IN))
        self.out = nn.Linear(2 * IN, OUT)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            virtual = self.mlp(x.mean(dim=0, keepdim=True))
            x = x + virtual
        pooled = x.sum(dim=0).unsqueeze(0).repeat(x.size(0), 1) / 50
        return self.out(torch.cat([x, pooled], dim=1))


class Constants(nn.Module):
    """Buffers, parameters and constants of shape [D], [1, D] and []."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(IN, OUT)
        self.register_buffer("mean", torch.rand(IN))
        self.register_buffer("std", torch.rand(1, IN) + 1)
        self.register_buffer("share", torch.tensor(0.5))
        self.bias = nn.Parameter(torch.zeros(1, OUT))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x, edge_index):
        x = (x - self.mean) / (self.std.abs() + 1)
        h = self.share * self.conv(x, edge_index) + (1 - self.share) * self.bias
        h = torch.full((1, OUT), 2.0) / (1 + h.abs()) - h * self.scale
        return torch.ones(OUT) - h


class Jumping(nn.Module):
    """JumpingKnowledge by an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(IN, HIDDEN)])
        self.convs.extend(pyg.SAGEConv(HIDDEN, HIDDEN) for _ in range(2))
        self.jump = pyg.JumpingKnowledge("lstm", HIDDEN, num_layers=3)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index):
        xs = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            xs.append(x)
        return self.lin(self.jump(xs))


class Hooked(nn.Module):
    """Hooks of all kinds, on the module, on convolutions, and on parts of them."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(IN, HIDDEN), pyg.SAGEConv(HIDDEN, HIDDEN)])
        self.gat, self.lin = pyg.GATConv(HIDDEN, 4, heads=2), nn.Linear(8 + IN, OUT - 1)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_forward_pre_hook(lambda _m, args: (args[0] * 2, *args[1:]))
        self.register_forward_hook(
            lambda _m, args, _kwargs, out: torch.cat([out, args[0][:, :1]], 1), with_kwargs=True
        )
        gcn, sage = self.convs
        gcn.register_forward_pre_hook(
            lambda _m, args, kwargs: ((args[0].relu(), *args[1:]), kwargs), with_kwargs=True
        )
        sage.register_forward_hook(lambda _m, args, out: out + args[0])
        gcn.lin.register_forward_hook(self._scaled)
        sage.lin_l.register_forward_hook(partial(self._powered, 2), always_call=True)
        self.gat.lin.register_forward_pre_hook(lambda _m, args: args[0].tanh())

    def _scaled(self, _m, _args, out):
        return out * self.scale

    def _powered(self, power, _m, _args, out):
        return out**power

    def forward(self, x, edge_index):
        h = x
        for conv in self.convs:
            h = conv(h, edge_index)
        return self.lin(torch.cat([self.gat(h, edge_index), x], 1))


PYG = {
    "hooks": Hooked,
    "centred": Centred,
    "virtual node": VirtualNode,
    "constants": Constants,
    "jumping lstm": Jumping,
    "models.GCN jk=lstm": lambda: pyg.GCN(IN, HIDDEN, 2, OUT, jk="lstm"),
}
