"""Models that reduce all edges of a relation, or all nodes, to a row that later steps read."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tests.support.pyg import pyg

WIDTH, OUT, EDGE_FEATURES = 5, 4, 2
Change = Callable[[torch.Tensor], torch.Tensor]


class Weights(nn.Module):
    """Weights divided or moved by what all of them come to, before a convolution."""

    def __init__(self, change: Change, conv: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.change = conv or pyg.GCNConv(WIDTH, OUT), change

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, self.change(edge_weight))


class Features(nn.Module):
    """The same of features of edges."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.conv, self.change = pyg.GINEConv(nn.Linear(WIDTH, OUT), edge_dim=EDGE_FEATURES), change

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, self.change(edge_attr))


class Looped(nn.Module):
    """The largest weight with self-loops, which a later convolution of other edges reads."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, OUT)

    def forward(self, x, edge_index, edge_weight):
        loops, weight = pyg_add_self_loops(edge_index, edge_weight, 7.0, x.size(0))
        shares = weight / weight.max()
        row, col = loops
        messages = self.lin(x)[row] * shares.view(-1, 1)
        return x.new_zeros(x.size(0), OUT).index_add(0, col, messages) * weight.mean()


def pyg_add_self_loops(edge_index, weight, fill, nodes):
    """PyG's function, imported where it is called: its import warns."""
    from torch_geometric.utils import add_self_loops

    return add_self_loops(edge_index, weight, fill_value=fill, num_nodes=nodes)


class Scores(nn.Module):
    """Numbers that the edges get from both ends, divided by the largest of them all."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.score = nn.Linear(WIDTH, OUT), nn.Linear(2 * OUT, 1)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.lin(x)
        score = self.score(torch.cat([h[row], h[col]], dim=1)).exp()
        messages = score / score.max() * h[row]
        return torch.zeros_like(h).index_add(0, col, messages)


class Nodes(nn.Module):
    """A function of all rows after a convolution."""

    def __init__(self, function: Change) -> None:
        super().__init__()
        self.conv, self.function = pyg.SAGEConv(WIDTH, OUT), function

    def forward(self, x, edge_index):
        return self.function(self.conv(x, edge_index))


OF_EDGES: dict[str, Callable[[], nn.Module]] = {
    "w / max": lambda: Weights(lambda w: w / w.max()),
    "w / max, summed": lambda: Weights(lambda w: w / w.max(), pyg.GraphConv(WIDTH, OUT)),
    "w / sum": lambda: Weights(lambda w: w / w.sum()),
    "w between min and max": lambda: Weights(lambda w: (w - w.min()) / (w.max() - w.min() + 0.1)),
    "w standardised": lambda: Weights(lambda w: ((w - w.mean()) / w.std()).sigmoid()),
    "w / norm": lambda: Weights(lambda w: w / torch.linalg.vector_norm(w)),
    "w softmax": lambda: Weights(lambda w: torch.softmax(w, dim=0)),
    "e / abs max": lambda: Features(lambda e: e / e.abs().max()),
    "e standardised": lambda: Features(lambda e: (e - e.mean(0)) / e.std(0, unbiased=False)),
    "e by its variance": lambda: Features(lambda e: (e - e.min()) / (1 + e.var())),
    "e / max of columns": lambda: Features(lambda e: e / e.max(dim=0, keepdim=True)[0]),
    "w with self-loops": Looped,
    "scores of ends": Scores,
}
OF_NODES: dict[str, Callable[[], nn.Module]] = {
    "h / max": lambda: Nodes(lambda h: h / (1 + h.abs().max())),
    "h - min of columns": lambda: Nodes(lambda h: h - h.min(dim=0).values),
    "h standardised": lambda: Nodes(lambda h: (h - h.mean()) / (1 + h.std())),
    "h softmax": lambda: Nodes(lambda h: h.softmax(dim=0) * h),
    "h / norm": lambda: Nodes(lambda h: h / torch.norm(h, p=2)),
    "heads / max": lambda: Nodes(
        lambda h: (h.view(-1, 2, 2) - h.view(-1, 2, 2).amax(dim=0)).flatten(1) / (1 + h.sum() ** 2)
    ),
}
STATISTICS = {**OF_EDGES, **OF_NODES}
