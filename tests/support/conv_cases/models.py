"""Whole models, each with its model.yaml: layers without edges, propagation without weights,
JumpingKnowledge, norms and links between layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.conv_cases.case import EXACT, FOLDED, WIDTH, Example
from tests.support.dgl_library import dgl
from tests.support.pyg import pyg


class Conv(nn.Module):
    """One module of a library as a model."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, *given: Any, **weights: Any) -> Tensor:
        return self.conv(*given, **weights)


class Towers(nn.Module):
    """An encoder, two convolutions, JumpingKnowledge with the features, a linear head."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 8)
        self.norm = nn.BatchNorm1d(8)
        self.first, self.second = pyg.SAGEConv(8, 8), pyg.SAGEConv(8, 8)
        self.join = pyg.JumpingKnowledge(mode)
        self.hidden = nn.Linear(29 if mode == "cat" else 8, 6, bias=False)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        start = self.norm(self.encoder(x).relu())
        one = self.first(start, edges).relu()
        two = self.second(one, edges)
        more = [x, start] if self.join.mode == "cat" else []
        return self.head(self.hidden(self.join([*more, one, two])).tanh())


TOWERS = (
    "{{conv: linear, prefix: encoder, activation: relu, batch_norm: {{prefix: norm}},"
    " order: [activation, batch_norm]}}, {{conv: sage, prefix: first, activation: relu}},"
    " {{conv: sage, prefix: second}},"
    " {{conv: jumping_knowledge, {mode}}},"
    " {{conv: linear, prefix: hidden, bias: false, activation: tanh}},"
    " {{conv: linear, prefix: head}}"
)
SGC = "{conv: propagate, K: 3}, {conv: linear, prefix: conv.lin}"
INNER = "{conv: gcn, activation: relu}"
JK = ", {{conv: jumping_knowledge, mode: {}}}, {{conv: linear, prefix: lin}}"


def _layers(
    make: Callable[[], nn.Module],
    layers: str,
    weighted: bool = False,
    more: str = "",
    tolerance: float = EXACT,
) -> Example:
    text = f"library: pyg\n{more}layers: [{layers}]"
    return Example(make, text, weighted, tolerance=tolerance)


PYG_LAYERS = {
    "sgc": _layers(lambda: Conv(pyg.SGConv(5, 4, K=3)), SGC),
    "sgc-weighted": _layers(lambda: Conv(pyg.SGConv(5, 4, K=3)), SGC, weighted=True),
    "sgc-no-loops": _layers(
        lambda: Conv(pyg.SGConv(5, 4, K=2, add_self_loops=False)),
        "{conv: propagate, K: 2, add_self_loops: false}, {conv: linear, prefix: conv.lin}",
    ),
    "appnp": _layers(
        lambda: Conv(pyg.APPNP(K=4, alpha=0.15)),
        "{conv: propagate, K: 4, alpha: 0.15}",
        more=WIDTH,
    ),
    "appnp-weighted-plain": _layers(
        lambda: Conv(pyg.APPNP(K=2, alpha=0.15, normalize=False)),
        "{conv: propagate, K: 2, alpha: 0.15, normalize: false}",
        weighted=True,
        more=WIDTH,
    ),
    **{
        f"jk-{mode}": _layers(
            lambda mode=mode: pyg.GCN(5, 8, 3, 4, jk=mode),
            f"{INNER}, {INNER}, {INNER}" + JK.format(mode),
            weighted=True,
        )
        for mode in ("cat", "max")
    },
    "jk-lstm": _layers(
        lambda: pyg.GCN(5, 8, 3, 4, jk="lstm"),
        f"{INNER}, {INNER}, {INNER}" + JK.format("lstm, prefix: jk"),
        weighted=True,
    ),
    "jk-last": _layers(
        lambda: pyg.GCN(5, 8, 2, 4, jk="last", norm="batch_norm"),
        ", ".join(["{conv: gcn, batch_norm: true, activation: relu}"] * 2)
        + ", {conv: linear, prefix: lin}",
        tolerance=FOLDED,
    ),
    "towers-cat": _layers(
        lambda: Towers("cat"),
        TOWERS.format(mode="mode: cat, layers: [input, 0, 1, 2]"),
        tolerance=FOLDED,
    ),
    "towers-max": _layers(lambda: Towers("max"), TOWERS.format(mode="mode: max"), tolerance=FOLDED),
}


def _three(
    make: Callable[[], nn.Module], inner: str, last: str, weighted: bool, tolerance: float
) -> Example:
    """Three layers, the first two alike."""
    text = f"library: pyg\nlayers:\n  - {inner}\n  - {inner}\n  - {last}\n"
    return Example(make, text, weighted, tolerance=tolerance)


PYG_MODELS = {
    "GCN-layer_norm": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm="layer_norm", norm_kwargs={"mode": "node"}),
        "{conv: gcn, layer_norm: true, activation: relu}",
        "{conv: gcn}",
        True,
        EXACT,
    ),
    "GCN-layer_norm-graph": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm="layer_norm"),
        "{conv: gcn, layer_norm: {mode: graph}, activation: relu}",
        "{conv: gcn}",
        True,
        EXACT,
    ),
    "GraphSAGE-graph_norm": _three(
        lambda: pyg.GraphSAGE(6, 8, 3, 5, norm="graph_norm", norm_kwargs={"eps": 0.01}),
        "{conv: sage, graph_norm: {eps: 0.01}, activation: relu}",
        "{conv: sage}",
        False,
        EXACT,
    ),
    "GCN-pair_norm": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm="pair_norm"),  # which takes 8 as its scale
        "{conv: gcn, graph_norm: {kind: pair, scale: 8}, activation: relu}",
        "{conv: gcn}",
        False,
        EXACT,
    ),
    "GCN-pair_norm-individually": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm=pyg.PairNorm(scale=0.5, scale_individually=True)),
        "{conv: gcn, graph_norm: {kind: pair, scale: 0.5, scale_individually: true},"
        " activation: relu}",
        "{conv: gcn}",
        False,
        EXACT,
    ),
    "GCN-instance_norm": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm="instance_norm", act_first=True),
        "{conv: gcn, graph_norm: instance, activation: relu, order: [activation, graph_norm]}",
        "{conv: gcn}",
        False,
        EXACT,
    ),
    "GCN-mean_subtraction": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm=pyg.MeanSubtractionNorm()),
        "{conv: gcn, graph_norm: mean_subtraction, activation: relu}",
        "{conv: gcn}",
        False,
        EXACT,
    ),
    "GCN-size": _three(
        lambda: pyg.GCN(6, 8, 3, 5, norm=pyg.GraphSizeNorm()),
        "{conv: gcn, graph_norm: size, activation: relu}",
        "{conv: gcn}",
        False,
        EXACT,
    ),
    "GraphSAGE-batch_norm-act_first": _three(
        lambda: pyg.GraphSAGE(6, 8, 3, 5, norm="batch_norm", act="gelu", act_first=True),
        "{conv: sage, batch_norm: true, activation: gelu, order: [activation, batch_norm]}",
        "{conv: sage}",
        False,
        FOLDED,
    ),
    "GAT": _three(
        lambda: pyg.GAT(6, 8, 3, 5, heads=4, act="leaky_relu"),
        "{conv: gat, activation: leaky_relu}",
        "{conv: gat, concat: false}",
        False,
        EXACT,
    ),
    "GATv2": _three(
        lambda: pyg.GAT(6, 8, 3, 5, heads=4, v2=True, act="elu"),
        "{conv: gatv2, activation: elu}",
        "{conv: gatv2, concat: false}",
        False,
        EXACT,
    ),
    "GIN-batch_norm": _three(
        lambda: pyg.GIN(6, 8, 3, 5, norm="batch_norm", act="tanh"),
        "{conv: gin, mlp: [linear, batch_norm, tanh, linear], batch_norm: true, activation: tanh}",
        "{conv: gin, mlp: [linear, batch_norm, tanh, linear]}",
        False,
        FOLDED,
    ),
}


class Jumping(nn.Module):
    """DGL's example of JumpingKnowledge: what is joined is summed over neighbours once more."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        convs = dgl.nn.pytorch
        sizes = [(5, 8), (8, 8)]
        self.layers = nn.ModuleList(
            convs.GraphConv(*size, allow_zero_in_degree=True) for size in sizes
        )
        self.jump = dgl.nn.JumpingKnowledge(mode, 8, 2)
        self.output = nn.Linear(16 if mode == "cat" else 8, 4)
        self._sum = dgl.function.copy_u("h", "m"), dgl.function.sum("m", "h")

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        found = []
        for layer in self.layers:
            x = layer(graph, x).relu()
            found.append(x)
        graph.ndata["h"] = self.jump(found)
        graph.update_all(*self._sum)
        return self.output(graph.ndata["h"])


class Stack(nn.Module):
    """GAT, then GCN with norms, then SAGE with links to earlier layers."""

    def __init__(self) -> None:
        super().__init__()
        convs, zero = dgl.nn.pytorch, {"allow_zero_in_degree": True}
        self.gat1 = convs.GATConv(7, 4, 3, residual=True, activation=functional.elu, **zero)
        self.gcn2 = convs.GraphConv(12, 12, norm="right", **zero)
        self.sage3 = convs.SAGEConv(12, 6, "mean", norm=nn.LayerNorm(6), activation=torch.tanh)
        self.norm2 = nn.LayerNorm(12, eps=1e-3)
        self.prelu = nn.PReLU(12)
        self.link = nn.Linear(12, 6)
        self.back = nn.Linear(7, 6, bias=False)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        one = self.gat1(graph, x).flatten(1)
        two = one + self.prelu(self.norm2(self.gcn2(graph, one)))
        return self.sage3(graph, two) + self.link(one)


STACK = """
library: dgl
ignore: [back.*]
layers:
  - {conv: gat, residual: true, activation: elu}
  - conv: gcn
    norm: right
    layer_norm: {eps: 0.001, prefix: norm2}
    activation: {kind: prelu, prefix: prelu}
    skip: true
  - conv: sage
    activation: tanh
    layer_norm: true
    skip: {from: 0, linear: link}
    order: [activation, layer_norm, skip]
"""


DGL_LAYERS = {
    "sgc": Example(
        lambda: Conv(dgl.nn.SGConv(5, 4, k=3, allow_zero_in_degree=True)),
        "library: dgl\n"
        "layers: [{conv: propagate, k: 3, norm: in_degree}, {conv: linear, prefix: conv.fc}]",
    ),
    "appnp": Example(
        lambda: Conv(dgl.nn.APPNPConv(k=4, alpha=0.15)),
        "library: dgl\ninput_width: 5\nlayers: [{conv: propagate, k: 4, alpha: 0.15, norm: both}]",
    ),
    **{
        f"jk-{mode}": Example(
            lambda mode=mode: Conv(Jumping(mode)),
            f"library: dgl\nlayers: [{INNER}, {INNER},"
            f" {{conv: jumping_knowledge, mode: {mode}{more}}},"
            " {conv: propagate, k: 1, norm: none}, {conv: linear, prefix: conv.output}]",
        )
        for mode, more in (("cat", ""), ("max", ""), ("lstm", ", prefix: conv.jump"))
    },
}
DGL_STACK = Example(Stack, STACK)
