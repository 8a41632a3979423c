"""DGL's models over several relations: every option, held against the modules."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from embertide.models.dgl_interop import load_dgl
from tests.support.conv_cases.case import EXACT, FOLDED
from tests.support.hetero_case import (
    BOUGHT_BY,
    BUYS,
    HAS,
    LISTED,
    RELATIONS,
    ByType,
    Chain,
    HeteroCase,
    Tensors,
    edges,
    weights,
)
from tests.support.hetero_case_one import OneGraph
from tests.support.typed_world import WIDTHS

Cases = dict[str, HeteroCase]


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
    "hetero-each": HeteroCase(
        lambda n: DglChain(
            conv=n.HeteroGraphConv(
                {name: n.GraphConv(WIDTHS[source], 4) for source, name, _ in RELATIONS}
            )
        ),
        f"{LISTED}layers: [{{conv: hetero, each: {{conv: gcn}}}}]",
    ),
    "hetero-deep": HeteroCase(_deep, _DEEP),
}


def by_relation(conv: Any, x: Tensor, edges: Tensor, relation: Tensor, _kinds: Tensor) -> Tensor:
    """RelGraphConv's forward, with the norm that the script gives it."""
    graph = load_dgl().graph(tuple(edges), num_nodes=len(x))
    norm = getattr(conv, "given_norm", "none")
    if norm == "none":
        return conv(graph, x, relation)
    if norm == "all":
        return conv(graph, x, relation, 1.0 / graph.in_degrees()[edges[1]].double()[:, None])
    if norm == "weights":
        return conv(graph, x, relation, edge_weights()[:, None])
    key = relation * len(x) + edges[1]
    share = 1.0 / torch.bincount(key)[key].double()
    return conv(graph, x, relation, share[:, None])


def edge_weights() -> Tensor:
    """[E] of the edges of all relations, one after another; 1 of those without weights."""
    of_some = weights()
    return torch.cat([of_some.get(one, torch.ones(len(ends[0]))) for one, ends in edges().items()])


def _rgcn(name: str, options: str, *widths: int, norm: str = "none", **more: Any) -> Cases:
    """RelGraphConv over all relations behind a projection of each type."""

    def make(n: Any) -> nn.Module:
        linears = n.HeteroLinear(WIDTHS, widths[0])
        convs = [
            n.RelGraphConv(into, out, len(RELATIONS), **more)
            for into, out in itertools.pairwise(widths)
        ]
        for conv in convs:
            conv.given_norm = norm
        return OneGraph(linears, convs, by_relation)

    layers = "".join(f", {{conv: rgcn{options}}}" for _ in widths[1:])
    text = f"{LISTED}layers: [{{conv: linear, prefix: lins}}{layers}]"
    tolerance = FOLDED if name.endswith("many") else EXACT
    case = HeteroCase(make, text, tolerance=tolerance, weighted=norm == "weights")
    return {f"rgcn-{name}": case}


RGCN = {
    **_rgcn("plain", "", 6, 8, 4),
    **_rgcn("narrow", "", 8, 2),
    **_rgcn("mean", ", norm: relation", 6, 4, norm="relation"),
    **_rgcn("weighted", ", edge_weight: true", 6, 4, norm="weights"),
    **_rgcn("by-all", ", norm: all, bias: false", 6, 4, norm="all", bias=False),
    **_rgcn("no-loop", ", self_loop: false", 6, 4, self_loop=False),
    **_rgcn("own-norm", ", norm_inside: true", 6, 4, layer_norm=True),
    **_rgcn("basis", ", regularizer: basis", 6, 4, regularizer="basis", num_bases=1),
    **_rgcn("basis-many", ", regularizer: basis", 6, 4, regularizer="basis"),
    **_rgcn("blocks", ", regularizer: bdd, num_bases: 2", 6, 4, regularizer="bdd", num_bases=2),
}


def by_types(conv: Any, x: Tensor, edges: Tensor, relation: Tensor, kinds: Tensor) -> Tensor:
    """HGTConv's forward."""
    graph = load_dgl().graph(tuple(edges), num_nodes=len(x))
    return conv(graph, x, kinds, relation)


def _hgt(name: str, options: str, width: int, **more: Any) -> Cases:
    """HGTConv with two heads of three columns behind a projection of each type."""

    def make(n: Any) -> nn.Module:
        conv = n.HGTConv(width, 3, 2, len(WIDTHS), len(RELATIONS), **more)
        return OneGraph(n.HeteroLinear(WIDTHS, width), [conv], by_types)

    text = f"{LISTED}layers: [{{conv: linear, prefix: lins}}, {{conv: hgt{options}}}]"
    return {f"hgt-{name}": HeteroCase(make, text)}


HGT = {
    **_hgt("plain", "", 6),
    **_hgt("projected", "", 5),
    **_hgt("norm", ", use_norm: true", 6, use_norm=True),
}
CASES = {**HETERO, **RGCN, **HGT}
