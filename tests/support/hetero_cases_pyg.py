"""PyG's models over several relations: every option, held against the modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.support.hetero_case import (
    BOUGHT_BY,
    BUYS,
    FOLLOWS,
    HAS,
    LISTED,
    NEVER,
    OF,
    RELATIONS,
    ByType,
    Chain,
    HeteroCase,
    Relu,
)
from tests.support.typed_world import WIDTHS

Convs = dict[tuple[str, str, str], nn.Module]


def _pair(relation: tuple[str, str, str]) -> tuple[int, int]:
    return WIDTHS[relation[0]], WIDTHS[relation[2]]


def _mixed(n: Any, aggr: str) -> nn.Module:
    """A kind of convolution for each relation."""
    convs: Convs = {
        BUYS: n.SAGEConv(_pair(BUYS), 8),
        BOUGHT_BY: n.GATConv(_pair(BOUGHT_BY), 4, heads=2, add_self_loops=False),
        FOLLOWS: n.GCNConv(7, 8),
        NEVER: n.GraphConv(_pair(NEVER), 8),
        HAS: n.GATv2Conv(_pair(HAS), 4, heads=2, add_self_loops=False),
        OF: n.TransformerConv(_pair(OF), 4, heads=2),
    }
    return Chain(conv=n.HeteroConv(convs, aggr=aggr))


_MIXED = """\
layers:
  - conv: hetero
    aggr: {}
    convs:
      user:buys:item: {{conv: sage}}
      item:bought_by:user: {{conv: gat, add_self_loops: false}}
      user:follows:user: {{conv: gcn}}
      tag:never:user: {{conv: graph}}
      item:has:tag: {{conv: gatv2, add_self_loops: false}}
      tag:of:item: {{conv: transformer, heads: 2}}
"""


def _deep(n: Any) -> nn.Module:
    """A projection for each type, two layers with norms and links, a head for one type."""
    hidden = 6
    return Chain(
        lins=ByType({name: nn.Linear(width, hidden) for name, width in WIDTHS.items()}),
        act=Relu(),
        conv1=n.HeteroConv({one: n.SAGEConv(hidden, hidden) for one in RELATIONS}),
        norm1=ByType({name: nn.LayerNorm(hidden) for name in WIDTHS}),
        act1=Relu(),
        conv2=n.HeteroConv(
            {
                one: n.GINConv(nn.Linear(hidden, 3), train_eps=True)
                if one == FOLLOWS
                else n.SAGEConv((hidden, hidden), 3, aggr="max", project=True)
                for one in (FOLLOWS, BUYS, HAS)
            },
            aggr="mean",
        ),
        lin=ByType({"item": nn.Linear(3, 4)}),
    )


_DEEP = (
    LISTED
    + """\
outputs: [item, user]
layers:
  - {conv: linear, prefix: lins, activation: relu}
  - {conv: hetero, each: {conv: sage}, layer_norm: {prefix: norm1}, activation: relu}
  - conv: hetero
    aggr: mean
    convs:
      user:follows:user: {conv: gin}
      user:buys:item: {conv: sage, aggr: max, project: true}
      item:has:tag: {conv: sage, aggr: max, project: true}
  - {conv: linear, prefix: lin, types: [item]}
"""
)


class Linked(nn.Module):
    """A layer whose input is added, projected by one Linear for each type."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.conv = n.HeteroConv(
            {one: n.GraphConv(_pair(one), 4) for one in (BUYS, FOLLOWS, HAS)}, aggr="max"
        )
        self.res = n.HeteroDictLinear(WIDTHS, 4)

    def forward(self, x: Any, graph: Any) -> dict[str, Tensor]:
        links = self.res(x)
        return {name: h.tanh() + links[name] for name, h in self.conv(x, graph).items()}


class Net(nn.Module):
    """A model of one node type, for ``to_hetero``."""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.conv1 = n.SAGEConv((-1, -1), 6)
        self.conv2 = n.GATConv((-1, -1), 3, add_self_loops=False)
        self.lin = n.Linear(-1, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        return self.lin(self.conv2(x, edge_index))


def _to_hetero(n: Any) -> nn.Module:
    from tests.support.hetero_case import edges
    from tests.support.typed_world import make_typed_features

    model = n.to_hetero(Net(n), (list(WIDTHS), list(RELATIONS)))
    model(make_typed_features(), edges())
    return model


_TO_HETERO = (
    LISTED
    + """\
layers:
  - {conv: hetero, prefix: conv1, each: {conv: sage}, activation: relu}
  - {conv: hetero, prefix: conv2, each: {conv: gat, add_self_loops: false}}
  - {conv: linear, prefix: lin}
"""
)

HETERO = {
    **{
        f"hetero-{aggr}": HeteroCase(lambda n, aggr=aggr: _mixed(n, aggr), _MIXED.format(aggr))
        for aggr in ("sum", "mean", "min", "max")
    },
    "hetero-cat": HeteroCase(
        lambda n: Chain(
            conv=n.HeteroConv(
                {
                    BUYS: n.LEConv(_pair(BUYS), 3),
                    OF: n.GATConv(_pair(OF), 4, heads=2, concat=False, add_self_loops=False),
                    FOLLOWS: n.GATConv(7, 2, residual=True),
                },
                aggr="cat",
            )
        ),
        "layers: [{conv: hetero, aggr: cat, convs: {user:buys:item: {conv: le},"
        " tag:of:item: {conv: gat, concat: false, add_self_loops: false},"
        " user:follows:user: {conv: gat, residual: true}}}]",
    ),
    "hetero-deep": HeteroCase(_deep, _DEEP),
    "hetero-linked": HeteroCase(
        Linked,
        "layers: [{conv: hetero, aggr: max, convs: {user:buys:item: {conv: graph},"
        " user:follows:user: {conv: graph}, item:has:tag: {conv: graph}},"
        " activation: tanh, skip: {linear: res}}]",
    ),
    "hetero-to-hetero": HeteroCase(_to_hetero, _TO_HETERO),
    "hetero-weighted": HeteroCase(
        lambda n: Chain(
            conv=n.HeteroConv({one: n.GraphConv(_pair(one), 8) for one in (BUYS, BOUGHT_BY)})
        ),
        "layers: [{conv: hetero, convs: {user:buys:item: {conv: graph},"
        " item:bought_by:user: {conv: graph}}}]",
        weighted=True,
    ),
    "hetero-featureless": HeteroCase(
        lambda n: Chain(
            conv=n.HeteroConv(
                {
                    BUYS: n.GraphConv((7, 5), 4),
                    HAS: n.SAGEConv((5, 4), 4),
                    FOLLOWS: n.SAGEConv(7, 4, root_weight=False),
                }
            )
        ),
        "features: [user, item]\nlayers: [{conv: hetero, convs: {user:buys:item: {conv: graph},"
        " item:has:tag: {conv: sage}, user:follows:user: {conv: sage, root_weight: false}}}]",
        lacks=("tag",),
    ),
}
CASES = {**HETERO}
