"""More of PyG's convolutions: every option, and an example of each for docs/model.md."""

from __future__ import annotations

from typing import Any

from torch import Tensor, arange, nn

from tests.support.conv_cases.case import WIDTH, ConvCase, Example
from tests.support.conv_cases.pyg_filters import from_input
from tests.support.pyg import pyg

_GRAPH = {
    f"graph-{aggr}-{size}{'-weighted' * weighted}": ConvCase(
        lambda n, aggr=aggr, out=out: n.GraphConv(5, out, aggr=aggr),
        f"conv: graph, aggr: {aggr}",
        weighted,
    )
    for aggr in ("add", "sum", "mean", "max")
    for size, out in (("wide", 8), ("narrow", 3))
    for weighted in (size == "wide",)
} | {
    **{
        f"graph-{aggr}": ConvCase(
            lambda n, aggr=aggr: n.GraphConv(5, 3, aggr=aggr), f"conv: graph, aggr: {aggr}", True
        )
        for aggr in ("min", "var", "std")
    },
    **{
        f"sage-{aggr}": ConvCase(
            lambda n, aggr=aggr: n.SAGEConv(5, 3, aggr=aggr), f"conv: sage, aggr: {aggr}"
        )
        for aggr in ("min", "var", "std")
    },
    **{
        f"sage-{'-'.join(aggrs)}": ConvCase(
            lambda n, aggrs=aggrs, out=out, more=more: n.SAGEConv(5, out, aggr=list(aggrs), **more),
            f"conv: sage, aggrs: [{', '.join(aggrs)}]{options}",
        )
        for aggrs, out, more, options in (
            (("mean", "max", "std"), 3, {}, ""),
            (("max", "sum"), 8, {"root_weight": False}, ", root_weight: false"),
            (
                ("sum", "min"),
                3,
                {"root_weight": False, "project": True},
                ", root_weight: false, project: true",
            ),
        )
    },
    **{
        f"gin-{aggr}": ConvCase(
            lambda n, aggr=aggr: n.GINConv(nn.Linear(5, 3), aggr=aggr), f"conv: gin, aggr: {aggr}"
        )
        for aggr in ("min", "var", "std")
    },
    "le": ConvCase(lambda n: n.LEConv(5, 3), "conv: le", True),
    "le-no-bias": ConvCase(lambda n: n.LEConv(5, 3, bias=False), "conv: le, bias: false"),
    "graph-default": ConvCase(lambda n: n.GraphConv(5, 3), "conv: graph", True),
    "graph-no-bias": ConvCase(
        lambda n: n.GraphConv(5, 3, bias=False), "conv: graph, bias: false", True
    ),
}


_ATTENTION = {
    "transformer-one-head": ConvCase(lambda n: n.TransformerConv(5, 4), "conv: transformer"),
    "transformer-heads": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=3), "conv: transformer, heads: 3"
    ),
    "transformer-average": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=3, concat=False),
        "conv: transformer, heads: 3, concat: false",
    ),
    "transformer-rootless": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=2, root_weight=False),
        "conv: transformer, heads: 2, root_weight: false",
    ),
    "transformer-beta": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=3, beta=True),
        "conv: transformer, heads: 3, beta: true",
    ),
    "transformer-no-bias": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=2, bias=False),
        "conv: transformer, heads: 2, bias: false",
    ),
    "agnn": ConvCase(lambda n: n.AGNNConv(), "conv: agnn", more=WIDTH),
    "agnn-fixed-no-loops": ConvCase(
        lambda n: n.AGNNConv(requires_grad=False, add_self_loops=False),
        "conv: agnn, add_self_loops: false",
        more=WIDTH,
    ),
}


def with_eps(conv: Any, x: Tensor, edges: Tensor) -> Tensor:
    """The module as it is with another eps than the stored one."""
    conv.eps.fill_(0.25)
    return conv(x, edges)


_SAID = {
    "gcn-loops": ConvCase(lambda n: n.GCNConv(5, 3), "conv: gcn, add_self_loops: true", True),
    "gin-eps": ConvCase(
        lambda n: n.GINConv(nn.Linear(5, 3)), "conv: gin, eps: 0.25", forward=with_eps
    ),
    "propagate-loops": ConvCase(
        lambda n: n.APPNP(2, 0.2),
        "conv: propagate, K: 2, alpha: 0.2, add_self_loops: true",
        more=WIDTH,
    ),
}


DEGREES = arange(12)
"""A histogram of degrees, as PNAConv is given the training set's."""


def _pna(name: str, options: str, *columns: int, **more: Any) -> dict[str, ConvCase]:
    """PNAConv with some of the aggregators and scalers; other towers and Linears."""
    words = options.split(" | ")
    aggregators, scalers = (one.split(", ") for one in words)
    said = "".join(
        f", {key}: {str(value).lower()}"
        for key, value in more.items()
        if key in ("divide_input", "act")
    )
    return {
        f"pna-{name}": ConvCase(
            lambda n: n.PNAConv(*columns, aggregators, scalers, DEGREES, **more),
            f"conv: pna, aggregators: [{words[0]}], scalers: [{words[1]}]{said}",
        )
    }


_DEGREES = {
    **_pna("mean-max", "mean, max | identity, amplification", 5, 4),
    **_pna("all", "sum, min, var, std | attenuation, linear, inverse_linear", 5, 4, towers=2),
    **_pna("divided", "mean, std | identity", 6, 4, towers=2, divide_input=True),
    **_pna(
        "deep",
        "mean, min, std | identity, linear",
        5,
        4,
        towers=2,
        pre_layers=2,
        post_layers=2,
        act="elu",
    ),
    "fa": ConvCase(lambda n: n.FAConv(5), "conv: fa, x_0: input", forward=from_input),
    "fa-no-loops": ConvCase(
        lambda n: n.FAConv(5, eps=0.3, add_self_loops=False),
        "conv: fa, x_0: input, eps: 0.3, add_self_loops: false",
        forward=from_input,
    ),
    "fa-plain": ConvCase(
        lambda n: n.FAConv(5, eps=0.0, normalize=False),
        "conv: fa, x_0: input, eps: 0.0, normalize: false, edge_weight: true",
        True,
        forward=from_input,
        exported=False,  # it fails without weights, which an export tries, too
    ),
}


CASES = {**_DEGREES, **_SAID, **_GRAPH, **_ATTENTION}


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GraphConv(5, 8), pyg.GraphConv(8, 4, aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


GRAPH = """
library: pyg
layers:
  - {conv: graph, activation: relu}
  - {conv: graph, aggr: mean}
"""


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.TransformerConv(5, 4, heads=3)
        self.conv2 = pyg.TransformerConv(12, 4, heads=2, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


TRANSFORMER = """
library: pyg
layers:
  - {conv: transformer, heads: 3, activation: relu}
  - {conv: transformer, heads: 2, concat: false}
"""


class Agnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 8)
        self.prop1, self.prop2 = pyg.AGNNConv(requires_grad=False), pyg.AGNNConv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.prop2(self.prop1(self.lin(x).relu(), edge_index), edge_index)


AGNN = """
library: pyg
layers:
  - {conv: linear, prefix: lin, activation: relu}
  - {conv: agnn}
  - {conv: agnn}
"""


class Le(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.LEConv(5, 8), pyg.LEConv(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Any = None) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


LE = """
library: pyg
layers:
  - {conv: le, activation: relu}
  - {conv: le}
"""


class Fa(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(5, 8), nn.Linear(8, 4)
        self.convs = nn.ModuleList([pyg.FAConv(8, eps=0.3) for _ in range(2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x_0 = self.lin1(x).relu()
        for conv in self.convs:
            x = conv(x, x_0, edge_index)
        return self.lin2(x)


FA = """
library: pyg
layers:
  - {conv: linear, prefix: lin1, activation: relu}
  - {conv: fa, x_0: 0, eps: 0.3}
  - {conv: fa, x_0: 0, eps: 0.3}
  - {conv: linear, prefix: lin2}
"""


class Pna(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        degrees = arange(12)  # how many nodes of the training set have each number of edges
        ways = {
            "aggregators": ["mean", "min", "max", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
        }
        self.conv1 = pyg.PNAConv(5, 8, deg=degrees, towers=2, **ways)
        self.conv2 = pyg.PNAConv(8, 4, deg=degrees, towers=2, divide_input=True, **ways)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


PNA = """
library: pyg
layers:
  - conv: pna
    aggregators: [mean, min, max, std]
    scalers: [identity, amplification, attenuation]
    activation: relu
  - conv: pna
    aggregators: [mean, min, max, std]
    scalers: [identity, amplification, attenuation]
    divide_input: true
"""

EXAMPLES = {
    "graph": Example(Graph, GRAPH, weighted=True, on_grids=False),
    "transformer": Example(Transformer, TRANSFORMER),
    "le": Example(Le, LE, weighted=True),
    "fa": Example(Fa, FA),
    "pna": Example(Pna, PNA),
    "agnn": Example(Agnn, AGNN),
}
