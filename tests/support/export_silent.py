"""Modules whose programs were wrong on some graph, and agreed on the graph of a plain proof.

Each does something else where a graph, a call or a type of numbers is another one.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.lin = pyg.SAGEConv(5, 3), nn.Linear(5, 5)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h * 2 if self.other(x, edge_index) else h


# ---- the number of nodes or edges


class ManyNodes(Base):
    def other(self, x, edge_index):
        return x.size(0) > 100


class VeryManyNodes(Base):
    def other(self, x, edge_index):
        return x.shape[0] > 10_000  # VeryManyNodes


class VeryLong(Base):
    def other(self, x, edge_index):
        return len(x) >= 10_000  # VeryLong


class VeryManyEdges(Base):
    def other(self, x, edge_index):
        return edge_index.size(1) > 100_000  # VeryManyEdges


class VeryLarge(Base):
    def other(self, x, edge_index):
        return edge_index.numel() > 1_000_000  # VeryLarge


class BeyondMany(Base):
    def other(self, x, edge_index):
        return max(0, x.size(0) - 50_000)  # BeyondMany


class AsInTraining(Base):
    """What it knows of the nodes that it was trained on is used for them alone."""

    def __init__(self):
        super().__init__()
        self.register_buffer("known", torch.randn(600, 5))

    def other(self, x, edge_index):
        return self.known.size(0) == x.size(0)  # AsInTraining


class EvenNodes(Base):
    def other(self, x, edge_index):
        return bool(len(x) % 2)  # EvenNodes


class OneNode(Base):
    def other(self, x, edge_index):
        return x.size(0) == 1


class NoEdges(Base):
    def other(self, x, edge_index):
        return edge_index.numel() == 0


# ---- what the edges and the numbers are


class NoLoops(Base):
    def other(self, x, edge_index):
        from torch_geometric.utils import remove_self_loops

        return remove_self_loops(edge_index)[0].size(1) == edge_index.size(1)


class AllHaveEdges(Base):
    def other(self, x, edge_index):
        return edge_index.unique().numel() == x.size(0)  # AllHaveEdges


class SomeLarge(Base):
    def other(self, x, edge_index):
        return (x > 50).nonzero().size(0) > 0  # SomeLarge


class SomeRows(Base):
    def other(self, x, edge_index):
        return len(x[x[:, 0] > 50]) > 0  # SomeRows


class SomeWeights(Base):
    def other(self, x, edge_index):
        return torch.masked_select(x, x > 50).shape[0]  # SomeWeights


# ---- the type of numbers


class TrainedType(Base):
    def other(self, x, edge_index):
        return x.dtype == torch.float32


class ParametersType(Base):
    def other(self, x, edge_index):
        return self.lin.weight.dtype == torch.float32


class DefaultType(Base):
    def other(self, x, edge_index):
        return torch.get_default_dtype() == torch.float32


# ---- what is kept from call to call, and random numbers


class Count(Base):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def other(self, x, edge_index):
        self.calls += 1
        return self.calls > 1000


class First(Count):
    def other(self, x, edge_index):
        self.calls += 1
        return self.calls == 1


class CountTensor(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))

    def other(self, x, edge_index):
        self.calls += 1
        return int(self.calls) > 1000


class Cache(Base):
    cached = None

    def forward(self, x, edge_index):
        if self.cached is None:
            self.cached = self.lin(x)
        return self.conv(self.cached, edge_index)


class History(Base):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, edge_index):
        self.seen = [*self.seen, self.conv(x, edge_index)][-5:]
        return self.seen[0]


class Running(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        self.mean = 0.9 * self.mean + 0.1 * h.mean(0)
        return h - self.mean


class Now(Base):
    def other(self, x, edge_index):
        return random.random() < 1e-9


class Noise(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index) @ F.dropout(torch.eye(3), 1e-12, training=True)


class Switched(Base):
    """Dropout in a list, which eval mode does not reach."""

    def __init__(self):
        super().__init__()
        self.more = [nn.Dropout(0.5)]

    def forward(self, x, edge_index):
        return self.more[0](self.conv(x, edge_index))


# ---- what is no fault


class Guarded(Base):
    """A branch that changes nothing, and shapes that are checked."""

    def forward(self, x, edge_index):
        assert x.size(0) > 0
        assert edge_index.size(0) == 2
        assert len(x) == x.shape[0]
        if edge_index.numel() == 0:
            return self.conv.lin_r(x) + self.conv.lin_l.bias
        return self.conv(x, edge_index)


class Kept(Base):
    """Something is kept for others to look at, and never read."""

    def __init__(self):
        super().__init__()
        self.calls, self.last = 0, None

    def forward(self, x, edge_index):
        self.calls += 1
        self.last = self.conv(x, edge_index)
        return self.last.relu()


class Seeded(Base):
    """Random numbers of a generator of its own are the same in each call."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + torch.randn(3, generator=torch.Generator().manual_seed(0))


class NeedsEdges(Base):
    """It fails on a graph without edges, where nothing can be compared."""

    def forward(self, x, edge_index):
        if edge_index.numel() == 0:
            raise ValueError("no edges")
        return self.conv(x, edge_index)


class Spread(Base):
    """NaN of one node, from the program as from the module."""

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (h - h.mean(0)) / h.std(0)
