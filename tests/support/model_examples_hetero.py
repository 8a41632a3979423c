"""Models of several node types or relations with their model.yaml: examples of docs/model.md.

Classes name ``dgl`` where a model is made, so that the page can be written without it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.support.conv_cases.case import Example
from tests.support.dgl_library import dgl
from tests.support.hetero_case import RELATIONS
from tests.support.pyg import pyg
from tests.support.typed_world import WIDTHS

Tensors = dict[str, Tensor]
TYPES = ["user", "item", "tag"]


class Hetero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lins = pyg.HeteroDictLinear(WIDTHS, 16)
        self.convs = nn.ModuleList(
            [
                pyg.HeteroConv({relation: pyg.SAGEConv(16, 16) for relation in RELATIONS}),
                pyg.HeteroConv(
                    {
                        ("user", "buys", "item"): pyg.GATConv((16, 16), 8, add_self_loops=False),
                        ("item", "bought_by", "user"): pyg.SAGEConv((16, 16), 8, aggr="max"),
                        ("user", "follows", "user"): pyg.GCNConv(16, 8),
                    },
                    aggr="mean",
                ),
            ]
        )
        self.norms = nn.ModuleDict({name: nn.LayerNorm(16) for name in TYPES})
        self.head = nn.ModuleDict({"item": nn.Linear(8, 4), "user": nn.Linear(8, 4)})

    def forward(self, x_dict: Tensors, edge_index_dict: Any) -> Tensors:
        x_dict = {name: h.relu() for name, h in self.lins(x_dict).items()}
        x_dict = self.convs[0](x_dict, edge_index_dict)
        x_dict = {name: self.norms[name](h).relu() for name, h in x_dict.items()}
        x_dict = self.convs[1](x_dict, edge_index_dict)
        return {name: self.head[name](h) for name, h in x_dict.items()}


HETERO = """
library: pyg
relations:          # source type, edge type, destination type: as the manifest names them
  - user:buys:item
  - item:bought_by:user
  - user:follows:user
  - tag:never:user
  - item:has:tag
  - tag:of:item
outputs: [item, user]
layers:
  - {conv: linear, prefix: lins, activation: relu}    # one for each node type
  - conv: hetero
    each: {conv: sage}                                # every relation, own weights
    layer_norm: {prefix: norms}                       # norms.user, norms.item, norms.tag
    activation: relu
  - conv: hetero
    aggr: mean
    convs:
      user:buys:item: {conv: gat, add_self_loops: false}
      item:bought_by:user: {conv: sage, aggr: max}
      user:follows:user: {conv: gcn}
  - {conv: linear, prefix: head}
"""


class Rgcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.RGCNConv(5, 8, num_relations=2, num_bases=1)
        self.conv2 = pyg.RGCNConv(8, 4, num_relations=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        h = self.conv1(x, edge_index, edge_type).relu()
        return self.conv2(h, edge_index, edge_type)


RGCN = """
library: pyg
relations: [page:links:page, page:redirects:page]     # edge_type 0 and 1
layers:
  - {conv: rgcn, activation: relu}
  - conv: rgcn
"""


class Hgt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        metadata = TYPES, list(RELATIONS)
        self.lins = nn.ModuleDict({name: nn.Linear(WIDTHS[name], 8) for name in TYPES})
        self.convs = nn.ModuleList([pyg.HGTConv(8, 8, metadata, heads=2) for _ in range(2)])

    def forward(self, x_dict: Tensors, edge_index_dict: Any) -> Tensors:
        x_dict = {name: self.lins[name](x).relu() for name, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        return x_dict


LISTED = """relations: [user:buys:item, item:bought_by:user, user:follows:user, tag:never:user,
  item:has:tag, tag:of:item]"""
HGT = f"""
library: pyg
{LISTED}
layers:
  - {{conv: linear, prefix: lins, activation: relu}}
  - conv: hgt
  - conv: hgt
"""


class Han(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HANConv(WIDTHS, 8, (TYPES, list(RELATIONS)), heads=2)
        self.lin = nn.Linear(8, 3)

    def forward(self, x_dict: Tensors, edge_index_dict: Any) -> Tensors:
        return {"user": self.lin(self.conv(x_dict, edge_index_dict)["user"])}


HAN = f"""
library: pyg
{LISTED}
outputs: [user]
layers:
  - conv: han
  - {{conv: linear, prefix: lin, types: [user]}}
"""


class DglHetero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first = {name: dgl.nn.GraphConv(WIDTHS[source], 8) for source, name, _ in RELATIONS}
        second = {name: dgl.nn.SAGEConv(8, 4, "mean") for _, name, _ in RELATIONS}
        self.layers = nn.ModuleList(
            [dgl.nn.HeteroGraphConv(first), dgl.nn.HeteroGraphConv(second, aggregate="max")]
        )

    def forward(self, graph: Any, h: Tensors) -> Tensors:
        h = {name: values.relu() for name, values in self.layers[0](graph, h).items()}
        return self.layers[1](graph, h)


DGL_HETERO = f"""
library: dgl
{LISTED}
layers:
  - {{conv: hetero, each: {{conv: gcn}}, activation: relu}}
  - {{conv: hetero, aggregate: max, each: {{conv: sage, aggregator_type: mean}}}}
"""


class DglRgcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = dgl.nn.RelGraphConv(5, 8, 2, regularizer="basis", num_bases=1)
        self.conv2 = dgl.nn.RelGraphConv(8, 4, 2, regularizer="bdd", num_bases=2)

    def forward(self, graph: Any, x: Tensor, etypes: Tensor) -> Tensor:
        return self.conv2(graph, self.conv1(graph, x, etypes).relu(), etypes)


DGL_RGCN = """
library: dgl
relations: [page:links:page, page:redirects:page]     # etypes 0 and 1
layers:
  - {conv: rgcn, regularizer: basis, activation: relu}
  - {conv: rgcn, regularizer: bdd, num_bases: 2}
"""


class DglHgt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lins = dgl.nn.HeteroLinear(WIDTHS, 8)
        self.conv = dgl.nn.HGTConv(8, 4, 2, num_ntypes=3, num_etypes=6, use_norm=True)

    def forward(self, graph: Any, h: Tensors) -> Tensors:
        graph.ndata["h"] = self.lins(h)
        one = dgl.to_homogeneous(graph, ndata=["h"])
        out = self.conv(one, one.ndata["h"], one.ndata[dgl.NTYPE], one.edata[dgl.ETYPE])
        counts = [graph.num_nodes(name) for name in graph.ntypes]
        return dict(zip(graph.ntypes, out.split(counts), strict=True))


DGL_HGT = """
library: dgl
types: [item, tag, user]    # the graph's ntypes and canonical_etypes, in order, which are numbered
relations: [item:bought_by:user, item:has:tag, tag:never:user, tag:of:item, user:buys:item,
  user:follows:user]
layers:
  - {conv: linear, prefix: lins}
  - {conv: hgt, use_norm: true}
"""

EXAMPLES: dict[str, dict[str, Example]] = {
    "dgl": {
        "hetero": Example(DglHetero, DGL_HETERO),
        "rgcn": Example(DglRgcn, DGL_RGCN),
        "hgt": Example(DglHgt, DGL_HGT),
    },
    "pyg": {
        "hetero": Example(Hetero, HETERO),
        "rgcn": Example(Rgcn, RGCN),
        "hgt": Example(Hgt, HGT),
        "han": Example(Han, HAN),
    },
}
