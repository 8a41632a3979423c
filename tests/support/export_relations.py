"""Modules of any kind that read the numbers of relations, on the edges of all of them together.

Each reads WIDTH columns of the nodes of all types.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from torch_geometric.utils import degree, scatter, softmax  # noqa: E402

WIDTH, OUT, RELATIONS = 6, 4, 3


class Embedded(nn.Module):
    """A row for each relation, as features of its edges."""

    def __init__(self, conv: nn.Module, columns: int = WIDTH) -> None:
        super().__init__()
        self.rel, self.conv = nn.Embedding(RELATIONS, columns), conv

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, self.rel(edge_type))


class OneHot(Embedded):
    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, F.one_hot(edge_type, RELATIONS).to(x.dtype))


class Weights(nn.Module):
    """A weight for each relation, times that of the edge, where it is above a degree."""

    def __init__(self) -> None:
        super().__init__()
        self.weights, self.conv = nn.Parameter(torch.rand(RELATIONS)), pyg.GraphConv(WIDTH, OUT)

    def forward(self, x, edge_index, edge_type, edge_weight):
        inside = degree(edge_index[1], x.size(0)).clamp(min=1)
        weight = self.weights[edge_type] * edge_weight / inside[edge_index[1]]
        return self.conv(x, edge_index, weight)


class Masked(nn.Module):
    """A convolution for each relation, of the edges that a mask keeps, with their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.GraphConv(WIDTH, OUT) for _ in range(RELATIONS))

    def forward(self, x, edge_index, edge_type, edge_weight):
        out = 0
        for number, conv in enumerate(self.convs):
            kept = edge_type == number
            out = out + conv(x, edge_index[:, kept], edge_weight[kept])
        return out


class Several(nn.Module):
    """The edges of all relations but the last, and what their ends give by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.rel, self.conv = nn.Embedding(RELATIONS, WIDTH), pyg.SAGEConv(WIDTH, OUT)

    def forward(self, x, edge_index, edge_type):
        kept = edge_type < RELATIONS - 1
        (row, col), types = edge_index[:, kept], edge_type[kept]
        h = scatter(x[row] * self.rel(types), col, dim=0, dim_size=x.size(0), reduce="max")
        return self.conv(h, edge_index[:, kept])


class CompGCN(nn.Module):
    """Rows of relations that each layer transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.rel = nn.Parameter(torch.randn(RELATIONS, WIDTH))
        self.lin1, self.lin2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, OUT)
        self.of_rel = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        message = self.lin1(x[row] * self.rel[edge_type])
        x = torch.tanh(scatter(message, col, dim=0, dim_size=x.size(0)))
        rel = self.of_rel(self.rel)
        message = self.lin2(x[row] - rel.index_select(0, edge_type))
        return scatter(message, col, dim=0, dim_size=x.size(0), reduce="mean")


class KGAT(nn.Module):
    """Attention over all in-edges, with a matrix for each relation."""

    def __init__(self) -> None:
        super().__init__()
        self.rel = nn.Embedding(RELATIONS, 3)
        self.matrix = nn.Parameter(torch.randn(RELATIONS, WIDTH, 3))
        self.lin1, self.lin2 = nn.Linear(WIDTH, OUT), nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        each = self.matrix[edge_type]
        head = torch.bmm(x[row].unsqueeze(1), each).squeeze(1)
        tail = torch.bmm(x[col].unsqueeze(1), each).squeeze(1)
        scores = (tail * torch.tanh(head + self.rel(edge_type))).sum(-1)
        shares = softmax(scores, col, num_nodes=x.size(0))
        near = scatter(x[row] * shares.unsqueeze(-1), col, dim=0, dim_size=x.size(0))
        return F.leaky_relu(self.lin1(x + near)) + F.leaky_relu(self.lin2(x * near))


class Own(pyg.MessagePassing):
    """A message of its own."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.rel, self.lin = nn.Embedding(RELATIONS, 3), nn.Linear(WIDTH + 3, OUT)

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, edge_type=edge_type)

    def message(self, x_j, edge_type):
        return self.lin(torch.cat([x_j, self.rel(edge_type)], dim=-1))


class Film(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.FiLMConv(WIDTH, OUT, num_relations=RELATIONS)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


def _gine(aggr: str) -> nn.Module:
    return Embedded(pyg.GINEConv(nn.Linear(WIDTH, OUT), aggr=aggr))


CASES: dict[str, Callable[[], nn.Module]] = {
    **{f"gine {aggr}": lambda aggr=aggr: _gine(aggr) for aggr in ("add", "mean", "max", "std")},
    "transformer": lambda: Embedded(pyg.TransformerConv(WIDTH, OUT, edge_dim=5), 5),
    "one hot": lambda: OneHot(pyg.GATv2Conv(WIDTH, OUT, edge_dim=RELATIONS, add_self_loops=False)),
    "weights": Weights,
    "masked": Masked,
    "several": Several,
    "compgcn": CompGCN,
    "kgat": KGAT,
    "own": Own,
    "film": Film,
}
