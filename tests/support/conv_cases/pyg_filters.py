"""PyG's filters and propagation: every option, and an example of each for docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, cat, nn

from tests.support.conv_cases.case import WIDTH, ConvCase, Example
from tests.support.pyg import pyg


def from_input(conv: Any, x: Tensor, edges: Tensor, **weights: Tensor) -> Tensor:
    """The features are the initial representation."""
    return conv(x, x, edges, **weights)


def embedding(model: Any, x: Tensor, edges: Tensor, **weights: Tensor) -> Tensor:
    """What LightGCN gives where its table holds the features."""
    model.embedding = nn.Embedding.from_pretrained(x)
    return model.get_embedding(edges, **weights)


def with_lambda(conv: Any, x: Tensor, edges: Tensor) -> Tensor:
    """ChebConv's forward with the largest eigenvalue given."""
    return conv(x, edges, lambda_max=1.75)


_PROPAGATION = {
    "appnp": ConvCase(lambda n: n.APPNP(3, 0.2), "conv: appnp, K: 3, alpha: 0.2", True, more=WIDTH),
    "appnp-plain": ConvCase(
        lambda n: n.APPNP(2, 0.2, normalize=False),
        "conv: appnp, K: 2, alpha: 0.2, normalize: false",
        True,
        more=WIDTH,
    ),
    "appnp-no-loops": ConvCase(
        lambda n: n.APPNP(2, 0.2, add_self_loops=False),
        "conv: appnp, K: 2, alpha: 0.2, add_self_loops: false",
        more=WIDTH,
    ),
    "lg": ConvCase(lambda n: n.LGConv(), "conv: lg", True, more=WIDTH),
    "lg-plain": ConvCase(
        lambda n: n.LGConv(normalize=False), "conv: lg, normalize: false", more=WIDTH
    ),
    "lightgcn": ConvCase(
        lambda n: n.LightGCN(37, 5, 3), "conv: lightgcn", True, forward=embedding, exported=False
    ),
    "lightgcn-plain": ConvCase(
        lambda n: n.LightGCN(37, 5, 2, alpha=0.7, normalize=False),
        "conv: lightgcn, normalize: false",
        forward=embedding,
        exported=False,
    ),
}


_FILTERS = {
    **{
        f"{kind}-{size}{'-weighted' * weighted}": ConvCase(
            lambda n, name=name, out=out, more=more: getattr(n, name)(5, out, **more),
            f"conv: {kind}{options}",
            weighted,
        )
        for kind, name, more, options in (
            ("sg", "SGConv", {"K": 3}, ", K: 3"),
            ("ssg", "SSGConv", {"K": 2, "alpha": 0.3}, ", K: 2, alpha: 0.3"),
            ("tag", "TAGConv", {}, ""),
            ("arma", "ARMAConv", {}, ""),
        )
        for size, out in (("wide", 8), ("narrow", 3))
        for weighted in (size == "narrow",)
    },
    "sg-default-no-bias": ConvCase(
        lambda n: n.SGConv(5, 3, bias=False), "conv: sg, bias: false", True
    ),
    "sg-no-loops": ConvCase(
        lambda n: n.SGConv(5, 3, K=2, add_self_loops=False), "conv: sg, K: 2, add_self_loops: false"
    ),
    "ssg-no-loops": ConvCase(
        lambda n: n.SSGConv(5, 3, alpha=0.3, add_self_loops=False, bias=False),
        "conv: ssg, alpha: 0.3, add_self_loops: false, bias: false",
    ),
    "tag-plain": ConvCase(
        lambda n: n.TAGConv(5, 3, K=2, normalize=False),
        "conv: tag, K: 2, normalize: false",
        True,
    ),
    "tag-one-no-bias": ConvCase(
        lambda n: n.TAGConv(5, 8, K=1, bias=False), "conv: tag, K: 1, bias: false"
    ),
    **{
        f"cheb-{size}{'-weighted' * weighted}": ConvCase(
            lambda n, out=out: n.ChebConv(5, out, K=4), "conv: cheb", weighted
        )
        for size, out in (("wide", 8), ("narrow", 3))
        for weighted in (size == "narrow",)
    },
    "cheb-walk": ConvCase(
        lambda n: n.ChebConv(5, 3, K=2, normalization="rw", bias=False),
        "conv: cheb, K: 2, normalization: rw, bias: false",
        True,
    ),
    "cheb-lambda": ConvCase(
        lambda n: n.ChebConv(5, 8, K=3),
        "conv: cheb, lambda_max: 1.75",
        forward=with_lambda,
    ),
    "arma-stacks": ConvCase(
        lambda n: n.ARMAConv(5, 3, num_stacks=2, num_layers=3),
        "conv: arma, num_layers: 3",
        True,
    ),
    "arma-shared": ConvCase(
        lambda n: n.ARMAConv(5, 3, num_stacks=2, num_layers=3, shared_weights=True),
        "conv: arma, num_layers: 3, shared_weights: true",
    ),
    "arma-linear-no-bias": ConvCase(
        lambda n: n.ARMAConv(5, 3, num_layers=2, act=None, bias=False),
        "conv: arma, act: null, bias: false",
    ),
    "gcn2": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, theta=0.5, layer=2),
        "conv: gcn2, x_0: input, alpha: 0.2, theta: 0.5, layer: 2",
        True,
        forward=from_input,
    ),
    "gcn2-two-weights": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, theta=0.5, layer=2, shared_weights=False),
        "conv: gcn2, x_0: input, alpha: 0.2, theta: 0.5, layer: 2",
        forward=from_input,
    ),
    "gcn2-plain": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, normalize=False),
        "conv: gcn2, x_0: input, alpha: 0.2, normalize: false",
        True,
        forward=from_input,
    ),
    "gcn2-no-loops": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, add_self_loops=False),
        "conv: gcn2, x_0: input, alpha: 0.2, add_self_loops: false",
        forward=from_input,
    ),
}


CASES = {**_PROPAGATION, **_FILTERS}


class Sg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SGConv(5, 4, K=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


SG = """
library: pyg
layers:
  - {conv: sg, K: 2}
"""


class Ssg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SSGConv(5, 4, alpha=0.1, K=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


SSG = """
library: pyg
layers:
  - {conv: ssg, alpha: 0.1, K: 3}
"""


class Appnp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.prop = pyg.APPNP(K=10, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.prop(self.lin2(self.lin1(x).relu()), edge_index, edge_weight)


APPNP = """
library: pyg
layers:
  - {conv: linear, prefix: lin1, activation: relu}
  - {conv: linear, prefix: lin2}
  - {conv: appnp, K: 10, alpha: 0.1}
"""


class Tag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.TAGConv(5, 8), pyg.TAGConv(8, 4, K=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


TAG = """
library: pyg
layers:
  - {conv: tag, activation: relu}
  - {conv: tag}
"""


class Cheb(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.ChebConv(5, 8, K=2), pyg.ChebConv(8, 4, K=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


CHEB = """
library: pyg
layers:
  - {conv: cheb, activation: relu}
  - {conv: cheb}
"""


class Gcn2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 4)])
        self.convs = nn.ModuleList([pyg.GCN2Conv(8, 0.1, 0.5, layer) for layer in (1, 2)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, x_0, edge_index, edge_weight).relu()
        return self.lins[1](x)


GCN2 = """
library: pyg
layers:
  - {conv: linear, prefix: lins.0, activation: relu}
  - {conv: gcn2, x_0: 0, alpha: 0.1, theta: 0.5, layer: 1, activation: relu}
  - {conv: gcn2, x_0: 0, alpha: 0.1, theta: 0.5, layer: 2, activation: relu}
  - {conv: linear, prefix: lins.1}
"""


class Arma(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.ARMAConv(5, 8, num_stacks=3, num_layers=2, shared_weights=True)
        self.conv2 = pyg.ARMAConv(8, 4, num_stacks=3, num_layers=2, act=None)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


ARMA = """
library: pyg
layers:
  - {conv: arma, num_layers: 2, shared_weights: true, activation: relu}
  - {conv: arma, act: null}
"""


class Lg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.LGConv(), pyg.LGConv()])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        one = self.convs[0](x, edge_index, edge_weight)
        return cat([x, one, self.convs[1](one, edge_index, edge_weight)], dim=1)


LG = """
library: pyg
input_width: 5
layers:
  - {conv: lg}
  - {conv: lg}
  - {conv: jumping_knowledge, mode: cat, layers: [input, 0, 1]}
"""


class LightGcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = pyg.LightGCN(num_nodes=37, embedding_dim=5, num_layers=3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        self.model.embedding.weight.data = x  # the job's features are the rows of the table
        return self.model.get_embedding(edge_index, edge_weight)


LIGHTGCN = """
library: pyg
layers:
  - {conv: lightgcn}
"""

EXAMPLES = {
    "sg": Example(Sg, SG, weighted=True, on_grids=False),
    "ssg": Example(Ssg, SSG, weighted=True, on_grids=False),
    "appnp": Example(Appnp, APPNP, weighted=True, on_grids=False),
    "tag": Example(Tag, TAG, weighted=True),
    "cheb": Example(Cheb, CHEB, weighted=True),
    "gcn2": Example(Gcn2, GCN2, weighted=True, on_grids=False),
    "arma": Example(Arma, ARMA, weighted=True),
    "lg": Example(Lg, LG, weighted=True, on_grids=False),
    "lightgcn": Example(LightGcn, LIGHTGCN, weighted=True, on_grids=False),
}
