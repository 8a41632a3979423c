"""Modules that look up categories, columns of whole numbers, as OGB's models do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

OUT = 4


class Looked(nn.Module):
    """One column of categories beside two of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.conv = nn.Embedding(10, 4), pyg.SAGEConv(6, OUT)

    def forward(self, x, edge_index):
        return self.conv(torch.cat([self.emb(x[:, 0].long()), x[:, 1:]], dim=-1), edge_index)


class Atoms(nn.Module):
    """All columns are categories, so that x is of integers; as OGB's AtomEncoder."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(count, 6) for count in (7, 5, 3)])
        self.conv = pyg.GCNConv(6, OUT)

    def forward(self, x, edge_index):
        h = 0
        for at in range(x.shape[1]):
            h = h + self.tables[at](x[:, at])
        return self.conv(h, edge_index)


class Bonds(nn.Module):
    """Categories of edges, as OGB's BondEncoder."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(count, 3) for count in (4, 3)])
        self.conv = pyg.GINEConv(nn.Linear(3, OUT))

    def forward(self, x, edge_index, edge_attr):
        edges = self.tables[0](edge_attr[:, 0]) + self.tables[1](edge_attr[:, 1])
        return self.conv(x, edge_index, edges)


class OneHot(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(8, OUT)

    def forward(self, x, edge_index):
        hot = F.one_hot(x[:, 1].to(torch.long), num_classes=6)
        return self.conv(torch.cat([x[:, :1], hot, x[:, 2:]], dim=-1), edge_index)


class Bucketed(nn.Module):
    """Categories by division, by remainder and by boundaries."""

    def __init__(self) -> None:
        super().__init__()
        self.tens, self.ones = nn.Embedding(10, 6), nn.Embedding(10, 6)
        self.sizes, self.conv = nn.Embedding(4, 6), pyg.SAGEConv(6, OUT)
        self.bounds = torch.tensor([-1.0, 0.0, 1.0])

    def forward(self, x, edge_index):
        number, size = x[:, 0].long(), torch.bucketize(x[:, 1], self.bounds)
        return self.conv(
            self.tens(number // 10) + self.ones(number % 10) + self.sizes(size), edge_index
        )


class Bags(nn.Module):
    """Means, sums and maxima of the tokens of a node, with and without a number for padding."""

    def __init__(self) -> None:
        super().__init__()
        self.means = nn.EmbeddingBag(9, 6, mode="mean", padding_idx=0)
        self.sums = nn.EmbeddingBag(9, 6, mode="sum", padding_idx=2)
        self.most = nn.EmbeddingBag(9, 6, mode="max", padding_idx=0)
        self.all = nn.EmbeddingBag(9, 6)
        self.conv = pyg.SAGEConv(6, OUT)

    def forward(self, x, edge_index):
        shares = (x / 9).to(self.sums.weight.dtype)
        h = self.means(x) + self.sums(x, per_sample_weights=shares) + self.most(x) + self.all(x)
        return self.conv(h, edge_index)


class Sequence(nn.Module):
    """The state of a GRU at each node's last token, and the masked mean of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(9, 6, padding_idx=0)
        self.gru, self.conv = nn.GRU(6, 6, batch_first=True), pyg.SAGEConv(6, OUT)

    def forward(self, x, edge_index):
        kept, h = x != 0, self.emb(x)
        states, _ = self.gru(h)
        last = states[torch.arange(len(x)), kept.sum(1).clamp(min=1) - 1]
        mean = (h * kept.unsqueeze(-1)).sum(1) / kept.sum(1, keepdim=True).clamp(min=1)
        return self.conv(last + mean, edge_index)


@dataclass(frozen=True)
class CategoryCase:
    """A module, the width of its features, and which columns have how many categories."""

    make: Callable[[], nn.Module]
    width: int
    nodes: Mapping[int, int] = field(default_factory=dict)
    edges: Mapping[int, int] = field(default_factory=dict)


CASES = {
    "looked up": CategoryCase(Looked, 3, {0: 10}),
    "atoms": CategoryCase(Atoms, 3, {0: 7, 1: 5, 2: 3}),
    "bonds": CategoryCase(Bonds, 3, {}, {0: 4, 1: 3}),
    "one hot": CategoryCase(OneHot, 3, {1: 6}),
    "bags": CategoryCase(Bags, 3, dict.fromkeys(range(3), 9)),
    "sequence": CategoryCase(Sequence, 3, dict.fromkeys(range(3), 9)),
    "buckets": CategoryCase(Bucketed, 2, {0: 100}),
}
