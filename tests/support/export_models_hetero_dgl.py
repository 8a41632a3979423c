"""Models of graphs with types as DGL's examples write them; nothing here is shaped for export."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.export_models_hetero import HIDDEN, NODES, OUT, TRIPLES

dgl = load_dgl()
dglnn = dgl.nn.pytorch
fn = dgl.function
RELATIONS = ["writes", "written-by", "has", "of", "cites"]
EDGES = [(triple[0], name, triple[2]) for triple, name in zip(TRIPLES, RELATIONS, strict=True)]
GRAPH = {"nodes": NODES, "edges": EDGES}


class RelGraphConvLayer(nn.Module):
    """examples/pytorch/rgcn-hetero/model.py: weights of relations from bases, a self-loop."""

    def __init__(
        self,
        in_feat,
        out_feat,
        rel_names,
        num_bases,
        *,
        weight=True,
        bias=True,
        activation=None,
        self_loop=False,
        dropout=0.0,
    ):
        super().__init__()
        self.rel_names = rel_names
        self.bias = bias
        self.activation = activation
        self.self_loop = self_loop
        self.conv = dglnn.HeteroGraphConv(
            {
                rel: dglnn.GraphConv(in_feat, out_feat, norm="right", weight=False, bias=False)
                for rel in rel_names
            }
        )
        self.use_weight = weight
        self.use_basis = num_bases < len(self.rel_names) and weight
        if self.use_weight:
            if self.use_basis:
                self.basis = dglnn.WeightBasis((in_feat, out_feat), num_bases, len(self.rel_names))
            else:
                self.weight = nn.Parameter(torch.Tensor(len(self.rel_names), in_feat, out_feat))
        if bias:
            self.h_bias = nn.Parameter(torch.Tensor(out_feat))
        if self.self_loop:
            self.loop_weight = nn.Parameter(torch.Tensor(in_feat, out_feat))
        self.dropout = nn.Dropout(dropout)

    def forward(self, g, inputs):
        g = g.local_var()
        if self.use_weight:
            weight = self.basis() if self.use_basis else self.weight
            wdict = {
                self.rel_names[i]: {"weight": w.squeeze(0)}
                for i, w in enumerate(torch.split(weight, 1, dim=0))
            }
        else:
            wdict = {}
        if g.is_block:
            inputs_dst = {k: v[: g.number_of_dst_nodes(k)] for k, v in inputs.items()}
        else:
            inputs_dst = inputs
        hs = self.conv(g, inputs, mod_kwargs=wdict)

        def _apply(ntype, h):
            if self.self_loop:
                h = h + torch.matmul(inputs_dst[ntype], self.loop_weight)
            if self.bias:
                h = h + self.h_bias
            if self.activation:
                h = self.activation(h)
            return self.dropout(h)

        return {ntype: _apply(ntype, h) for ntype, h in hs.items()}


class EntityClassify(nn.Module):
    """The same example's model, its inputs projected to one width instead of embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.ModuleDict({name: nn.Linear(n, HIDDEN) for name, n in NODES.items() if n})
        self.layers = nn.ModuleList()
        self.layers.append(
            RelGraphConvLayer(
                HIDDEN,
                HIDDEN,
                RELATIONS,
                2,
                activation=F.relu,
                self_loop=True,
                dropout=0.5,
                weight=False,
            )
        )
        self.layers.append(
            RelGraphConvLayer(HIDDEN, OUT, RELATIONS, 2, activation=None, self_loop=True)
        )

    def forward(self, g, h):
        h = {name: self.embed[name](x) for name, x in h.items()}
        for layer in self.layers:
            h = layer(g, h)
        return h


class HeteroRGCNLayer(nn.Module):
    """The tutorial on heterogeneous graphs (5_giant_graph, hetero/1_basics): multi_update_all."""

    def __init__(self, in_size, out_size, etypes):
        super().__init__()
        self.weight = nn.ModuleDict({name: nn.Linear(in_size, out_size) for name in etypes})

    def forward(self, G, feat_dict):
        funcs = {}
        for srctype, etype, _dsttype in G.canonical_etypes:
            Wh = self.weight[etype](feat_dict[srctype])
            G.nodes[srctype].data["Wh_%s" % etype] = Wh  # noqa: UP031
            funcs[etype] = (fn.copy_u("Wh_%s" % etype, "m"), fn.mean("m", "h"))  # noqa: UP031
        G.multi_update_all(funcs, "sum")
        return {ntype: G.nodes[ntype].data["h"] for ntype in ("author", "paper", "term")}


class HeteroRGCN(nn.Module):
    """The same tutorial's model; features are those of the graph's nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.ModuleDict({name: nn.Linear(n, HIDDEN) for name, n in NODES.items() if n})
        self.layer1 = HeteroRGCNLayer(HIDDEN, HIDDEN, RELATIONS)
        self.layer2 = HeteroRGCNLayer(HIDDEN, OUT, RELATIONS)

    def forward(self, G):
        feats = {name: self.embed[name](x) for name, x in G.ndata["feat"].items()}
        h_dict = self.layer1(G, feats)
        h_dict = {k: F.leaky_relu(h) for k, h in h_dict.items()}
        h_dict = self.layer2(G, h_dict)
        return h_dict["author"]


class Convolutions(nn.Module):
    """The user guide's HeteroGraphConv, with another convolution for each relation."""

    def __init__(self) -> None:
        super().__init__()
        author, paper, term, _ = NODES.values()
        self.conv1 = dglnn.HeteroGraphConv(
            {
                "writes": dglnn.GATConv((author, paper), HIDDEN // 2, 2),
                "written-by": dglnn.SAGEConv((paper, author), HIDDEN, "mean"),
                "has": dglnn.GraphConv(paper, HIDDEN),
                "of": dglnn.SAGEConv((term, paper), HIDDEN, "pool"),
                "cites": dglnn.GATv2Conv(paper, HIDDEN // 2, 2),
            },
            aggregate=lambda parts, _type: sum(part.flatten(1) for part in parts),
        )

    def forward(self, blocks, x):
        h = self.conv1(blocks[0], x)
        return {name: F.relu(one.flatten(1)) for name, one in h.items()}


class Attention(nn.Module):
    """Message functions over chosen relations: the guide's edge_softmax, etype= and degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(NODES["author"] + NODES["paper"], 2, bias=False)
        self.value = nn.Linear(NODES["author"], 2 * OUT)

    def edge_attention(self, edges):
        both = torch.cat([edges.src["z"], edges.dst["z"]], dim=1)
        return {"e": F.leaky_relu(self.attn(both))}

    def forward(self, g, x):
        with g.local_scope():
            g.ndata["z"] = x
            g.nodes["author"].data["v"] = self.value(x["author"]).view(-1, 2, OUT)
            g.apply_edges(self.edge_attention, etype="writes")
            writes = g["writes"]
            g.edges["writes"].data["a"] = dglnn.edge_softmax(writes, writes.edata["e"]).unsqueeze(
                -1
            )
            g.update_all(fn.u_mul_e("v", "a", "m"), fn.sum("m", "h"), etype="writes")
            g.update_all(fn.copy_u("z", "m"), fn.sum("m", "n"), etype="has")
            degree = g.in_degrees(etype="has").float().clamp(min=1).unsqueeze(-1)
            return {
                "paper": g.nodes["paper"].data["h"].flatten(1),
                "term": g.nodes["term"].data["n"] / degree,
            }


HETERO_DGL = {
    "rgcn-hetero": EntityClassify,
    "multi_update_all": HeteroRGCN,
    "HeteroGraphConv": Convolutions,
    "edge_softmax": Attention,
}
