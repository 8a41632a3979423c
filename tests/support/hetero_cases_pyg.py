"""PyG's models over several relations: every option, held against the modules."""

from __future__ import annotations

import itertools
from typing import Any

from torch import Tensor, nn

from tests.support.conv_cases.case import EXACT, FOLDED
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
from tests.support.hetero_case_one import OneGraph
from tests.support.typed_world import WIDTHS

Cases = dict[str, HeteroCase]
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
                    BOUGHT_BY: n.GATConv(
                        _pair(BOUGHT_BY), 4, heads=2, concat=False, add_self_loops=False
                    ),
                    FOLLOWS: n.GATConv(7, 2, residual=True),
                },
                aggr="cat",
            )
        ),
        "layers: [{conv: hetero, aggr: cat, convs: {user:buys:item: {conv: le},"
        " item:bought_by:user: {conv: gat, concat: false, add_self_loops: false},"
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


def by_relation(conv: Any, x: Tensor, edges: Tensor, relation: Tensor, _kinds: Tensor) -> Tensor:
    """RGCNConv's forward."""
    return conv(x, edges, relation)


def _rgcn(name: str, options: str, *widths: int, tolerance: float = EXACT, **more: Any) -> Cases:
    """RGCNConv over all relations behind a projection of each type."""
    kind = "FastRGCNConv" if name.startswith("fast") else "RGCNConv"

    def make(n: Any) -> nn.Module:
        lins = ByType({of_type: nn.Linear(width, widths[0]) for of_type, width in WIDTHS.items()})
        convs = [
            getattr(n, kind)(into, out, len(RELATIONS), **more)
            for into, out in itertools.pairwise(widths)
        ]
        return OneGraph(lins, convs, by_relation)

    layers = "".join(f", {{conv: rgcn{options}}}" for _ in widths[1:])
    text = f"{LISTED}layers: [{{conv: linear, prefix: lins}}{layers}]"
    return {f"rgcn-{name}": HeteroCase(make, text, tolerance=tolerance)}


RGCN = {
    **_rgcn("mean", "", 6, 8),
    **_rgcn("mean-narrow", "", 8, 2),
    **_rgcn("sum", ", aggr: sum", 6, 6, aggr="sum"),
    **_rgcn("add-no-bias", ", aggr: add, bias: false", 6, 4, aggr="add", bias=False),
    **_rgcn("max", ", aggr: max", 6, 2, aggr="max"),
    **_rgcn("min", ", aggr: min", 6, 2, aggr="min"),
    **_rgcn("var", ", aggr: var", 6, 2, aggr="var"),
    **_rgcn("max-bases", ", aggr: max", 6, 4, aggr="max", num_bases=1),
    **_rgcn("rootless", ", root_weight: false", 6, 4, root_weight=False),
    **_rgcn("bases", "", 6, 6, 5, num_bases=1),
    **_rgcn("bases-narrow", ", aggr: sum", 8, 2, aggr="sum", num_bases=1),
    **_rgcn("bases-many", "", 6, 5, tolerance=FOLDED, num_bases=4),
    **_rgcn("bases-many-narrow", "", 8, 2, tolerance=FOLDED, num_bases=4),
    **_rgcn("blocks", "", 6, 4, num_blocks=2),
    **_rgcn("blocks-narrow", "", 12, 3, num_blocks=3),
    **_rgcn("fast", "", 6, 4),
    **_rgcn("fast-bases", "", 6, 4, num_bases=2, tolerance=FOLDED),
    **_rgcn("fast-blocks", ", aggr: sum", 6, 4, aggr="sum", num_blocks=2),
}


class OfSome(nn.Module):
    """A layer that is given some relations alone."""

    def __init__(self, relations: tuple[tuple[str, str, str], ...], conv: nn.Module) -> None:
        super().__init__()
        self.relations, self.conv = relations, conv

    def forward(self, x: Any, graph: Any) -> dict[str, Tensor]:
        return self.conv(x, {one: graph[one] for one in self.relations})


METADATA = list(WIDTHS), list(RELATIONS)

TRANSFORMERS = {
    "hgt": HeteroCase(
        lambda n: Chain(conv=n.HGTConv(WIDTHS, 6, METADATA, heads=2)),
        f"{LISTED}layers: [{{conv: hgt}}]",
    ),
    "hgt-deep": HeteroCase(
        lambda n: Chain(
            lins=ByType(n.HeteroDictLinear(WIDTHS, 8).lins),
            conv1=n.HGTConv(8, 8, METADATA, heads=4),
            conv2=n.HGTConv(8, 8, METADATA),
        ),
        f"{LISTED}layers: [{{conv: linear, prefix: lins}}, {{conv: hgt}}, {{conv: hgt}}]",
    ),
    "han": HeteroCase(
        lambda n: Chain(conv=n.HANConv(WIDTHS, 6, METADATA, heads=2)),
        f"{LISTED}layers: [{{conv: han}}]",
    ),
    "han-slope": HeteroCase(
        lambda n: OfSome(
            (BUYS, OF, FOLLOWS),
            n.HANConv(WIDTHS, 4, (list(WIDTHS), [BUYS, OF, FOLLOWS]), negative_slope=0.4),
        ),
        "layers: [{conv: han, negative_slope: 0.4}]\n"
        "relations: [user:buys:item, tag:of:item, user:follows:user]\n",
    ),
}
CASES = {**HETERO, **RGCN, **TRANSFORMERS}
