"""PyG's convolutions that most models have: every option, and examples for docs/model.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from tests.support.conv_cases.case import FOLDED, ConvCase, Example, Make
from tests.support.pyg import pyg

WIDE, NARROW = (5, 12), (12, 4)

Case = partial(ConvCase, on_grids=True)
"""A case that every grid runs, unless it differs in how it is read, not in what is computed."""


def gcn(size: tuple[int, int], **more: Any) -> Make:
    return lambda n: n.GCNConv(*size, **more)


def sage(size: tuple[int, int], **more: Any) -> Make:
    return lambda n: n.SAGEConv(*size, **more)


def gat(*size: int, **more: Any) -> Make:
    return lambda n: n.GATConv(*size, **more)


def gatv2(*size: int, **more: Any) -> Make:
    return lambda n: n.GATv2Conv(*size, **more)


def gin(function: Callable[[], nn.Module], **more: Any) -> Make:
    return lambda n: n.GINConv(function(), **more)


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.ELU(0.5), nn.Linear(9, 4))


CASES = {
    **{
        f"gcn-{'wide' if size == WIDE else 'narrow'}-{name}{'-weighted' * weights}": Case(
            gcn(size, **more), f"conv: gcn{options}", weights, on_grids=on_grids
        )
        for size in (WIDE, NARROW)
        for weights in (False, True)
        for name, more, options, on_grids in (
            ("default", {}, "", False),
            ("improved", {"improved": True}, ", improved: true", True),
            ("no-loops", {"add_self_loops": False}, ", add_self_loops: false", True),
            ("plain", {"normalize": False}, ", normalize: false", False),
        )
    },
    "gcn-no-bias": Case(gcn(NARROW, bias=False), "conv: gcn, bias: false", on_grids=False),
    "gcn-no-bias-wide": Case(gcn(WIDE, bias=False), "conv: gcn, bias: false", on_grids=False),
    **{
        f"sage-{aggr}-{'wide' if size == WIDE else 'narrow'}-{name}": Case(
            sage(size, aggr=aggr, **more),
            f"conv: sage, aggr: {aggr}{options}",
            on_grids=aggr in ("mean", "max") and size == size_on_grids,
        )
        for size in (WIDE, NARROW)
        for aggr in ("mean", "max", "sum", "add")
        for name, more, options, size_on_grids in (
            ("default", {}, "", None),
            ("rootless", {"root_weight": False}, ", root_weight: false", None),
            ("no-bias", {"bias": False}, ", bias: false", None),
            ("project", {"project": True}, ", project: true", NARROW),
            ("normalize", {"normalize": True}, ", normalize: true", WIDE),
        )
    },
    "sage-default": Case(sage(NARROW), "conv: sage", on_grids=False),
    "sage-all": Case(
        sage(WIDE, project=True, normalize=True, root_weight=False, bias=False),
        "conv: sage, project: true, normalize: true, root_weight: false, bias: false",
        on_grids=False,
    ),
    **{
        f"{conv}-{name}": Case(make(5, 4, **more), f"conv: {conv}{options}", on_grids=on_grids)
        for conv, make in (("gat", gat), ("gatv2", gatv2))
        for name, more, options, on_grids in (
            ("one-head", {}, "", False),
            ("heads", {"heads": 3}, "", True),
            ("heads-checked", {"heads": 3}, ", heads: 3", False),
            ("average", {"heads": 3, "concat": False}, ", concat: false", True),
            ("no-loops", {"heads": 3, "add_self_loops": False}, ", add_self_loops: false", True),
            ("slope", {"heads": 3, "negative_slope": 0.7}, ", negative_slope: 0.7", False),
            ("no-bias", {"heads": 3, "bias": False}, ", bias: false", False),
            ("residual", {"heads": 3, "residual": True}, ", residual: true", True),
            (
                "residual-average-no-bias",
                {"heads": 3, "residual": True, "concat": False, "bias": False},
                ", residual: true, concat: false, bias: false",
                False,
            ),
        )
    },
    "gat-two-projections": Case(gat((5, 5), 4, heads=3), "conv: gat", on_grids=False),
    "gatv2-shared": Case(
        gatv2(5, 4, heads=3, share_weights=True), "conv: gatv2, share_weights: true", on_grids=False
    ),
    **{
        f"gin-{aggr}": Case(
            gin(lambda: nn.Linear(5, 4), eps=0.3, aggr=aggr),
            f"conv: gin, aggr: {aggr}",
            on_grids=aggr in ("sum", "max"),
        )
        for aggr in ("add", "sum", "mean", "max")
    },
    "gin-trained-eps": Case(
        gin(lambda: nn.Linear(5, 4), train_eps=True), "conv: gin", on_grids=False
    ),
    "gin-sequential": Case(
        gin(sequential),
        "conv: gin, mlp: [linear, batch_norm, {activation: {kind: elu, slope: 0.5}}, linear]",
        tolerance=FOLDED,
    ),
    "gin-mlp": Case(
        gin(lambda: pyg.MLP([5, 8, 6, 4])),
        "conv: gin, mlp: [linear, batch_norm, relu, linear, batch_norm, relu, linear]",
        tolerance=FOLDED,
    ),
}


class Gcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(5, 8), pyg.GCNConv(8, 4)])
        self.norms = nn.ModuleList([pyg.BatchNorm(8)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        x = self.norms[0](self.convs[0](x, edge_index, edge_weight)).relu()
        return self.convs[1](x, edge_index, edge_weight)


GCN = """
library: pyg
layers:
  - conv: gcn
    batch_norm: {prefix: norms.0}
    activation: relu
  - conv: gcn
"""


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.SAGEConv(5, 8, aggr="max", project=True)
        self.conv2 = pyg.SAGEConv(8, 4, normalize=True)
        self.link = nn.Linear(5, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv1(x, edge_index).relu()
        return self.conv2(h, edge_index) + self.link(x)


SAGE = """
library: pyg
layers:
  - {conv: sage, aggr: max, project: true, activation: relu}
  - conv: sage
    normalize: true
    skip: {from: input, linear: link}   # added after the layer
"""


class Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GATConv(5, 4, heads=3)
        self.conv2 = pyg.GATConv(12, 4, heads=2, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(functional.elu(self.conv1(x, edge_index)), edge_index)


GAT = """
library: pyg
layers:
  - {conv: gat, activation: elu}
  - {conv: gat, concat: false}
"""


class Gatv2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATv2Conv(5, 4, heads=3, negative_slope=0.1, residual=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


GATV2 = """
library: pyg
layers:
  - {conv: gatv2, heads: 3, negative_slope: 0.1, residual: true}
"""


class Gin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ELU(0.5), nn.Linear(8, 8))
        self.conv1 = pyg.GINConv(inner, train_eps=True)
        self.conv2 = pyg.GINConv(nn.Linear(8, 4), aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


GIN = """
library: pyg
layers:
  - conv: gin
    mlp: [linear, batch_norm, {activation: {kind: elu, slope: 0.5}}, linear]
    activation: relu
  - {conv: gin, aggr: mean}
"""


class Propagate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.propagate = pyg.APPNP(K=4, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.propagate(self.lin2(self.lin1(x).relu()), edge_index, edge_weight)


PROPAGATE = """
library: pyg
layers:
  - {conv: linear, prefix: lin1, activation: relu}
  - {conv: linear, prefix: lin2}
  - {conv: propagate, K: 4, alpha: 0.1}
"""


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SGConv(5, 8, K=2)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.head(self.norm(self.conv(x, edge_index, edge_weight).relu()))


LINEAR = """
library: pyg
layers:
  - {conv: propagate, K: 2}
  - conv: linear
    prefix: conv.lin          # SGConv's own Linear
    activation: relu
    layer_norm: true
    order: [activation, layer_norm]
  - {conv: linear, prefix: head, bias: false}
"""


class JumpingKnowledge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gnn = pyg.GCN(5, 8, num_layers=2, out_channels=4, jk="cat")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.gnn(x, edge_index, edge_weight)


JUMPING_KNOWLEDGE = """
library: pyg
layers:
  - {conv: gcn, activation: relu}
  - {conv: gcn, activation: relu}   # with jk, the last convolution has its activation, too
  - {conv: jumping_knowledge, mode: cat}
  - {conv: linear, prefix: gnn.lin}
"""

EXAMPLES = {
    "gcn": Example(Gcn, GCN, weighted=True, tolerance=FOLDED),
    "sage": Example(Sage, SAGE),
    "gat": Example(Gat, GAT),
    "gatv2": Example(Gatv2, GATV2),
    "gin": Example(Gin, GIN, tolerance=FOLDED),
    "propagate": Example(Propagate, PROPAGATE, weighted=True),
    "linear": Example(Linear, LINEAR, weighted=True),
    "jumping_knowledge": Example(JumpingKnowledge, JUMPING_KNOWLEDGE, weighted=True),
}
