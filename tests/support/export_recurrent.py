"""Recurrent layers and cells over what each node has: the results of layers, one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.pyg import pyg

WIDTH, HIDDEN, OUT = 5, 6, 4


class Recurrent(nn.Module):
    """Two convolutions, and what a recurrent part makes of their results."""

    def __init__(self, part: nn.Module, use: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.SAGEConv(WIDTH, OUT), pyg.SAGEConv(OUT, OUT)
        self.part, self.use = part, use

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index).tanh()
        return self.use(self.part, h, self.conv2(h, edge_index).tanh())


class GeniePathLayer(nn.Module):
    """Attention over neighbours, and an LSTM's step whose batch are the nodes."""

    def __init__(self, in_dim: int, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.conv = pyg.GATConv(in_dim, HIDDEN, heads=1)
        self.lstm = nn.LSTM(HIDDEN, hidden, 1, bias=False)

    def forward(self, x, edge_index, h, c):
        x = torch.tanh(self.conv(x, edge_index))
        x = x[None, :]
        x, (h, c) = self.lstm(x, (h, c))
        return x[0], (h, c)


class GeniePath(nn.Module):
    """As PyG's example has it."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.gplayers = nn.ModuleList([GeniePathLayer(HIDDEN) for _ in range(2)])

    def forward(self, x, edge_index):
        x = self.lin1(x)
        h = torch.zeros(1, x.shape[0], HIDDEN).to(x)
        c = torch.zeros(1, x.shape[0], HIDDEN).to(x)
        for layer in self.gplayers:
            x, (h, c) = layer(x, edge_index, h, c)
        return self.lin2(x)


class GeniePathLazy(nn.Module):
    """As PyG's example has it: all neighbours first, then all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.breadths = nn.ModuleList([pyg.GATConv(HIDDEN, HIDDEN) for _ in range(2)])
        self.depths = nn.ModuleList([nn.LSTM(2 * HIDDEN, HIDDEN, 1, bias=False) for _ in range(2)])

    def forward(self, x, edge_index):
        x = self.lin1(x)
        h = torch.zeros(1, x.shape[0], HIDDEN).to(x)
        c = torch.zeros(1, x.shape[0], HIDDEN).to(x)
        tmps = [torch.tanh(one(x, edge_index)) for one in self.breadths]
        x = x[None, :]
        for tmp, depth in zip(tmps, self.depths, strict=True):
            x, (h, c) = depth(torch.cat((tmp[None, :], x), -1), (h, c))
        return self.lin2(x[0])


def over_layers(lstm, h, k):
    """[steps, N, columns]."""
    return lstm(torch.stack([h, k, h * k], dim=0))[0][-1]


def every_step(lstm, h, k):
    """[N, steps, columns], the last states beside what each step gives."""
    out, (last, cell) = lstm(torch.stack([h, k], dim=1))
    return torch.cat([out.flatten(1), last[-1], cell[0]], dim=1)


def gated(gru, h, k):
    out, last = gru(torch.stack([h, k], dim=1))
    return torch.cat([out[:, -1], last[1]], dim=1)


def cells(cell, h, k):
    """An LSTM's cell, twice."""
    state = cell(h)
    first, second = cell(k, state)
    return first + second


BIDIRECTIONAL = {"batch_first": True, "bidirectional": True}
RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm over layers": lambda: Recurrent(nn.LSTM(OUT, 4), over_layers),
    "lstm of two layers": lambda: Recurrent(nn.LSTM(OUT, 3, 2, **BIDIRECTIONAL), every_step),
    "gru": lambda: Recurrent(nn.GRU(OUT, 4, 2, batch_first=True), gated),
    "gru without bias": lambda: Recurrent(nn.GRU(OUT, 4, 1, bias=False, **BIDIRECTIONAL), gated),
    "lstm cell": lambda: Recurrent(nn.LSTMCell(OUT, 4), cells),
    "gru cell": lambda: Recurrent(nn.GRUCell(OUT, 4), lambda cell, h, k: cell(k, cell(h))),
    "genie path": GeniePath,
    "genie path, lazy": GeniePathLazy,
}
