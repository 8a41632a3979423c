"""DGL's models over several relations: every option, held against the modules."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.support.hetero_case import (
    BOUGHT_BY,
    BUYS,
    HAS,
    LISTED,
    ByType,
    Chain,
    HeteroCase,
    Tensors,
)
from tests.support.typed_world import WIDTHS


class DglChain(Chain):
    """DGL's layers take the graph first and keep heads apart, which a script joins.

    Relations without a module are no part of its graph.
    """

    def call(self, layer: nn.Module, x: Tensors, graph: Any, **more: Any) -> Tensors:
        read = [one for one in graph.canonical_etypes if one[1] in layer.mods]
        made = layer(graph.edge_type_subgraph(read), x, mod_kwargs=more)
        return {name: values.flatten(1) for name, values in made.items()}


def _pair(relation: tuple[str, str, str]) -> tuple[int, int]:
    return WIDTHS[relation[0]], WIDTHS[relation[2]]


def _mixed(n: Any, aggregate: str) -> nn.Module:
    """A kind of convolution for each relation; one is known by all three names."""
    convs = {
        "buys": n.SAGEConv(_pair(BUYS), 8, "mean"),
        "bought_by": n.GraphConv(5, 8),
        "follows": n.SAGEConv(7, 8, "gcn"),
        "never": n.GraphConv(4, 8, norm="right", activation=nn.functional.elu),
        "has": n.SAGEConv(_pair(HAS), 8, "pool"),
        "of": n.GraphConv(4, 8, norm="none"),
    }
    return DglChain(conv=n.HeteroGraphConv(convs, aggregate=aggregate))


_MIXED = """\
layers:
  - conv: hetero
    aggregate: {}
    convs:
      user:buys:item: {{conv: sage}}
      item:bought_by:user: {{conv: gcn}}
      user:follows:user: {{conv: sage}}
      tag:never:user: {{conv: gcn, norm: right, activation: elu}}
      item:has:tag: {{conv: sage}}
      tag:of:item: {{conv: gcn, norm: none}}
"""


def _attention(n: Any) -> nn.Module:
    """Attention between two types, with modules made for pairs or for one width."""
    more = {"allow_zero_in_degree": True}
    convs = {
        "buys": n.GATConv(_pair(BUYS), 4, 2, residual=True, **more),
        "bought_by": n.GATv2Conv(_pair(BOUGHT_BY), 4, 2, residual=True, **more),
        "has": n.DotGatConv(_pair(HAS), 4, 2, **more),
        "follows": n.GATConv(7, 4, 2, **more),
    }
    return DglChain(conv=n.HeteroGraphConv(convs))


def _deep(n: Any) -> nn.Module:
    """A projection, GIN over one relation between equal widths, a head for one type."""
    return DglChain(
        project=ByType(n.HeteroLinear(WIDTHS, 6).linears),
        conv=n.HeteroGraphConv(
            {
                "buys": n.GINConv(nn.Linear(6, 5), "sum", learn_eps=True),
                "follows": n.GraphConv(6, 5, norm="left"),
                "never": n.SAGEConv(6, 5, "gcn"),
                "of": n.SAGEConv((6, 6), 5, "gcn"),
            },
            aggregate="mean",
        ),
        head=ByType({"user": nn.Linear(5, 3)}),
    )


_DEEP = (
    LISTED
    + """\
outputs: [user]
layers:
  - {conv: linear, prefix: project}
  - conv: hetero
    aggregate: mean
    convs:
      user:buys:item: {conv: gin}
      user:follows:user: {conv: gcn, norm: left}
      tag:never:user: {conv: sage}
      tag:of:item: {conv: sage}
  - {conv: linear, prefix: head, types: [user]}
"""
)

HETERO = {
    **{
        f"hetero-{aggregate}": HeteroCase(
            lambda n, aggregate=aggregate: _mixed(n, aggregate), _MIXED.format(aggregate)
        )
        for aggregate in ("sum", "mean", "min", "max")
    },
    "hetero-attention": HeteroCase(
        _attention,
        "layers: [{conv: hetero, convs: {user:buys:item: {conv: gat, residual: true},"
        " item:bought_by:user: {conv: gatv2, residual: true},"
        " item:has:tag: {conv: dotgat, num_heads: 2}, user:follows:user: {conv: gat}}}]",
    ),
    "hetero-deep": HeteroCase(_deep, _DEEP),
}
CASES = {**HETERO}
