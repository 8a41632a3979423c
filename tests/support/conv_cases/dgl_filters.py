"""More of DGL's convolutions, and its filters: every option, and examples for docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, cat, nn

from tests.support.conv_cases.case import FOLDED, WIDTH, ConvCase, Example, Forward
from tests.support.dgl_library import dgl

ZERO = {"allow_zero_in_degree": True}
PNA = ["mean", "max", "min", "std", "var", "sum"]


def from_input(conv: Any, graph: Any, x: Tensor, **weights: Tensor) -> Tensor:
    """The features are the initial representation."""
    return conv(graph, x, x, **weights)


def with_lambda(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """ChebConv's forward with the largest eigenvalue given."""
    return conv(graph, x, [1.75])


def with_default_lambda(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """The same with DGL's default, which it would warn of."""
    return conv(graph, x, [2])


def with_eps(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """The module as it is with another eps than the stored one."""
    conv.eps.fill_(0.25)
    return conv(graph, x)


def beside_input(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """The features and the sum, side by side."""
    return cat([x, conv(graph, x)], dim=1)


def weighed(norm: str) -> Forward:
    """GraphConv's forward with edge weights that EdgeWeightNorm prepared."""

    def forward(conv: Any, graph: Any, x: Tensor, edge_weight: Tensor) -> Tensor:
        return conv(graph, x, edge_weight=dgl.nn.EdgeWeightNorm(norm)(graph, edge_weight))

    return forward


CASES = {
    **{
        f"gcn-weighed-{norm}": ConvCase(
            lambda n: n.GraphConv(5, 3, norm="none", **ZERO),
            f"conv: gcn, norm: none, edge_weight_norm: {norm}",
            True,
            forward=weighed(norm),
            exported=False,
        )
        for norm in ("both", "right")
    },
    **{
        f"{conv}-weighted": ConvCase(make, f"conv: {options}, edge_weight: true", True, more=more)
        for conv, make, options, more in (
            ("appnp", lambda n: n.APPNPConv(2, 0.2), "appnp, k: 2, alpha: 0.2", WIDTH),
            ("sg", lambda n: n.SGConv(5, 3, k=2, **ZERO), "sg, k: 2", ""),
            ("tag", lambda n: n.TAGConv(5, 3), "tag", ""),
        )
    },
    "gcn2-weighted": ConvCase(
        lambda n: n.GCN2Conv(5, 2, **ZERO),
        "conv: gcn2, feat_0: input, layer: 2, edge_weight: true",
        True,
        forward=from_input,
    ),
    "gin-eps": ConvCase(
        lambda n: n.GINConv(nn.Linear(5, 3)), "conv: gin, eps: 0.25", forward=with_eps
    ),
    **{
        f"propagate-{norm}": ConvCase(
            lambda n, norm=norm: n.GraphConv(5, 5, norm, weight=False, bias=False, **ZERO),
            f"conv: propagate, k: 1, norm: {norm}",
            more=WIDTH,
        )
        for norm in ("left", "right")
    },
    "linear-no-bias": ConvCase(
        lambda _n: nn.Linear(5, 3, bias=False),
        "conv: linear, prefix: conv, bias: false",
        forward=lambda conv, _graph, x: conv(x),
        exported=False,
    ),
    "jumping-layers": ConvCase(
        lambda n: n.GraphConv(5, 5, "right", weight=False, bias=False, **ZERO),
        "conv: propagate, k: 1, norm: right},"
        " {conv: jumping_knowledge, mode: cat, layers: [input, 0]",
        more=WIDTH,
        forward=beside_input,
    ),
    "appnp": ConvCase(lambda n: n.APPNPConv(3, 0.2), "conv: appnp, k: 3, alpha: 0.2", more=WIDTH),
    **{
        f"{kind}-{size}": ConvCase(
            lambda n, name=name, out=out, more=more: getattr(n, name)(5, out, **more),
            f"conv: {kind}{options}",
            forward=forward,
        )
        for kind, name, more, options, forward in (
            ("sg", "SGConv", {"k": 3, **ZERO}, ", k: 3", ConvCase.forward),
            ("tag", "TAGConv", {}, "", ConvCase.forward),
            ("cheb", "ChebConv", {"k": 4, "activation": None}, ", k: 4", with_default_lambda),
        )
        for size, out in (("wide", 8), ("narrow", 3))
    },
    "sg-no-bias": ConvCase(lambda n: n.SGConv(5, 3, bias=False, **ZERO), "conv: sg, bias: false"),
    "sg-cached": ConvCase(lambda n: n.SGConv(5, 8, bias=False, **ZERO), "conv: sg, bias: false"),
    "tag-activation": ConvCase(
        lambda n: n.TAGConv(5, 3, k=4, bias=False, activation=nn.Tanh()),
        "conv: tag, k: 4, bias: false, activation: tanh",
    ),
    **{
        f"cheb-lambda-{size}": ConvCase(
            lambda n, out=out: n.ChebConv(5, out, 3),
            "conv: cheb, k: 3, lambda_max: 1.75, activation: relu",
            forward=with_lambda,
        )
        for size, out in (("wide", 8), ("narrow", 3))
    },
    "cheb-one-no-bias": ConvCase(
        lambda n: n.ChebConv(5, 3, 1, activation=None, bias=False),
        "conv: cheb, k: 1, bias: false",
        forward=with_default_lambda,
    ),
    "gcn2": ConvCase(
        lambda n: n.GCN2Conv(5, 2, **ZERO),
        "conv: gcn2, feat_0: input, layer: 2",
        forward=from_input,
    ),
    "gcn2-two-weights": ConvCase(
        lambda n: n.GCN2Conv(5, 3, 0.3, 0.5, project_initial_features=False, bias=False, **ZERO),
        "conv: gcn2, feat_0: input, layer: 3, alpha: 0.3, lambda_: 0.5, bias: false",
        forward=from_input,
    ),
    **{
        f"pna-{name}": ConvCase(
            lambda n, more=more, out=out: n.PNAConv(
                6, out, more["aggregators"], more["scalers"], **more.get("how", {"delta": 1.3})
            ),
            f"conv: pna, aggregators: [{', '.join(more['aggregators'])}],"
            f" scalers: [{', '.join(more['scalers'])}], {options}",
            tolerance=FOLDED,
        )
        for name, out, more, options in (
            (
                "all",
                6,
                {"aggregators": PNA, "scalers": ["identity", "amplification", "attenuation"]},
                "delta: 1.3",
            ),
            (
                "towers",
                4,
                {
                    "aggregators": ["max", "mean"],
                    "scalers": ["attenuation"],
                    "how": {"delta": 2.5, "num_towers": 2},
                },
                "delta: 2.5",
            ),
            (
                "alone",
                6,
                {
                    "aggregators": ["sum"],
                    "scalers": ["identity"],
                    "how": {"delta": 1.0, "num_towers": 3, "residual": False},
                },
                "delta: 1.0, residual: false",
            ),
        )
    },
    "agnn": ConvCase(lambda n: n.AGNNConv(**ZERO), "conv: agnn", more=WIDTH),
    "agnn-fixed": ConvCase(
        lambda n: n.AGNNConv(init_beta=0.4, learn_beta=False, **ZERO), "conv: agnn", more=WIDTH
    ),
}


class Agnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(5, 8)
        self.layers = nn.ModuleList(
            [dgl.nn.AGNNConv(1.0, learn, allow_zero_in_degree=True) for learn in (False, True)]
        )

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        h = self.proj(x).relu()
        return self.layers[1](graph, self.layers[0](graph, h))


AGNN = """
library: dgl
layers:
  - {conv: linear, prefix: proj, activation: relu}
  - {conv: agnn}
  - {conv: agnn}
"""


class Sg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dgl.nn.SGConv(5, 4, k=2, cached=True, allow_zero_in_degree=True)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.conv(graph, x)


SG = """
library: dgl
layers:
  - {conv: sg, k: 2}
"""


class Appnp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 4)])
        self.propagate = dgl.nn.APPNPConv(k=10, alpha=0.1)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.propagate(graph, self.layers[1](self.layers[0](x).relu()))


APPNP = """
library: dgl
layers:
  - {conv: linear, prefix: layers.0, activation: relu}
  - {conv: linear, prefix: layers.1}
  - {conv: appnp, k: 10, alpha: 0.1}
"""


class Tag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([dgl.nn.TAGConv(5, 8), dgl.nn.TAGConv(8, 4, k=3)])

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.layers[1](graph, self.layers[0](graph, x).relu())


TAG = """
library: dgl
layers:
  - {conv: tag, activation: relu}
  - {conv: tag, k: 3}
"""


class Cheb(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [dgl.nn.ChebConv(5, 8, 3), dgl.nn.ChebConv(8, 4, 3, activation=None)]
        )

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.layers[1](graph, self.layers[0](graph, x, [2]), [2])


CHEB = """
library: dgl
layers:
  - {conv: cheb, k: 3, activation: relu}    # ChebConv's own, unless activation=None
  - {conv: cheb, k: 3}
"""


class Gcn2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.layers = nn.ModuleList(
            [dgl.nn.GCN2Conv(8, layer, allow_zero_in_degree=True) for layer in (1, 2)]
        )

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        h = feat_0 = self.fc1(x).relu()
        for layer in self.layers:
            h = layer(graph, h, feat_0).relu()
        return self.fc2(h)


GCN2 = """
library: dgl
layers:
  - {conv: linear, prefix: fc1, activation: relu}
  - {conv: gcn2, feat_0: 0, layer: 1, activation: relu}
  - {conv: gcn2, feat_0: 0, layer: 2, activation: relu}
  - {conv: linear, prefix: fc2}
"""


class Pna(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(5, 8)
        scalers = ["identity", "amplification", "attenuation"]
        self.conv = dgl.nn.PNAConv(8, 4, ["mean", "max", "std"], scalers, delta=2.5, num_towers=2)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        return self.conv(graph, self.proj(x).relu())


PNA = """
library: dgl
layers:
  - {conv: linear, prefix: proj, activation: relu}
  - conv: pna
    aggregators: [mean, max, std]
    scalers: [identity, amplification, attenuation]
    delta: 2.5
"""

EXAMPLES = {
    "pna": Example(Pna, PNA, tolerance=FOLDED),
    "agnn": Example(Agnn, AGNN, on_grids=False),
    "sg": Example(Sg, SG, on_grids=False),
    "appnp": Example(Appnp, APPNP, on_grids=False),
    "tag": Example(Tag, TAG, on_grids=False),
    "cheb": Example(Cheb, CHEB),
    "gcn2": Example(Gcn2, GCN2),
}
