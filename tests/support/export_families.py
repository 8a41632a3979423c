"""Models as people have them: weights that forward changes, norms of rows, single columns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.support.export_attention import ATTENTION
from tests.support.export_recurrent import RECURRENT
from tests.support.export_statistics import STATISTICS
from tests.support.export_tokens import TOKENS
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

WIDTH, OUT, EDGE_FEATURES = 5, 4, 2


class Weighing(nn.Module):
    """Weights that forward changes before a convolution that adds self-loops."""

    def __init__(self, conv: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.change = conv, change

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, self.change(edge_weight))


class Gated(nn.Module):
    """A weight from both ends and the edge's features, by an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(2 * WIDTH + EDGE_FEATURES, 6), nn.ReLU(), nn.Linear(6, 1)
        )
        self.conv = pyg.GCNConv(WIDTH, OUT, improved=True)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        gate = self.gate(torch.cat([x[row], x[col], edge_attr], dim=-1)).sigmoid()
        return self.conv(x, edge_index, gate.view(-1))


class Twice(nn.Module):
    """Two such convolutions, one after another, of the same gate of the edges' features."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(EDGE_FEATURES, 1)
        self.conv1, self.conv2 = pyg.GCNConv(WIDTH, 6), pyg.GCNConv(6, OUT)

    def forward(self, x, edge_index, edge_attr):
        weight = self.gate(edge_attr).squeeze(-1).sigmoid()
        return self.conv2(self.conv1(x, edge_index, weight).relu(), edge_index, weight)


class Rows(nn.Module):
    """A function of rows after a convolution."""

    def __init__(self, function: nn.Module | Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.function = pyg.SAGEConv(WIDTH, OUT), function

    def forward(self, x, edge_index):
        return self.function(self.conv(x, edge_index))


class Pooled(nn.Module):
    """A mean over all nodes as PyG's pooling without a batch makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(WIDTH, OUT)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h + pyg.global_mean_pool(h, None).expand(len(h), -1)


class Attributed(nn.Module):
    """A convolution that takes features of edges."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr)


class Tokens(nn.Module):
    """torch's attention over the layers' results of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(WIDTH, OUT), pyg.SAGEConv(OUT, OUT)])

    def forward(self, x, edge_index):
        layers = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            layers.append(x)
        tokens = torch.stack(layers, dim=1)
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).sum(dim=1)


class Adapted(nn.Module):
    """LoRA around a Linear."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        out, columns = base.weight.shape
        self.base = base
        self.a, self.b = nn.Parameter(torch.randn(2, columns)), nn.Parameter(torch.randn(out, 2))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


class Quantised(nn.Module):
    """The nearest row of a codebook for each node."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.book = pyg.SAGEConv(WIDTH, OUT), nn.Parameter(torch.randn(6, OUT))

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return self.book[torch.cdist(h, self.book).argmin(dim=1)]


def _adapted(conv: nn.Module, name: str, by: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """A convolution one of whose parts is wrapped."""
    setattr(conv, name, by(getattr(conv, name)))
    return conv


def _degrees() -> torch.Tensor:
    return torch.tensor([3, 5, 4, 2, 1])


COMPUTED: dict[str, Callable[[], nn.Module]] = {
    "gcn log1p": lambda: Weighing(pyg.GCNConv(WIDTH, OUT), torch.log1p),
    "gcn scaled": lambda: Weighing(pyg.GCNConv(WIDTH, OUT), lambda w: (w / 3.0).clamp(max=0.5)),
    "sg exp": lambda: Weighing(pyg.SGConv(WIDTH, OUT, K=2), lambda w: torch.exp(-w)),
    "ssg sqrt": lambda: Weighing(pyg.SSGConv(WIDTH, OUT, alpha=0.2, K=2), torch.sqrt),
    "appnp square": lambda: Weighing(pyg.APPNP(K=2, alpha=0.1), torch.square),
    "gcn gated": Gated,
    "gcn twice": Twice,
}
ROWS: dict[str, Callable[[], nn.Module]] = {
    "rms norm": lambda: Rows(nn.RMSNorm(OUT)),
    "rms norm with eps": lambda: Rows(nn.RMSNorm(OUT, eps=1e-3, elementwise_affine=False)),
    "group norm": lambda: Rows(nn.GroupNorm(2, OUT)),
    "nan to num": lambda: Rows(lambda h: torch.nan_to_num(h.log(), nan=0.5, neginf=-3.0)),
    "cumsum": lambda: Rows(lambda h: h.cumsum(dim=-1)),
    "selu": lambda: Rows(nn.SELU()),
    "clamp": lambda: Rows(lambda h: h.clamp(-0.5, 0.5)),
    "pooled": Pooled,
    "tokens": Tokens,
    "codebook": Quantised,
}
ADAPTED: dict[str, Callable[[], nn.Module]] = {
    "sage lora": lambda: _adapted(pyg.SAGEConv(WIDTH, OUT), "lin_l", Adapted),
    "gcn lora": lambda: _adapted(pyg.GCNConv(WIDTH, OUT), "lin", Adapted),
    "gat lora": lambda: _adapted(pyg.GATConv(WIDTH, OUT // 2, heads=2), "lin", Adapted),
    "sage weight norm": lambda: _adapted(pyg.SAGEConv(WIDTH, OUT), "lin_r", weight_norm),
}
NARROW: dict[str, Callable[[], nn.Module]] = {
    "cluster gcn": lambda: pyg.ClusterGCNConv(WIDTH, OUT),
    "jk lstm": lambda: pyg.GraphSAGE(WIDTH, 6, 2, OUT, jk="lstm"),
    "pna edge_dim": lambda: Attributed(
        pyg.PNAConv(
            WIDTH,
            OUT,
            aggregators=["mean", "max", "std"],
            scalers=["identity", "amplification", "attenuation", "linear", "inverse_linear"],
            deg=_degrees(),
            edge_dim=EDGE_FEATURES,
        )
    ),
    "mf": lambda: pyg.MFConv(WIDTH, OUT, max_degree=3),
    "w / max": STATISTICS["w / max"],
}
FAMILIES = {
    **COMPUTED,
    **ROWS,
    **NARROW,
    **STATISTICS,
    **ATTENTION,
    **RECURRENT,
    **TOKENS,
    **ADAPTED,
}
