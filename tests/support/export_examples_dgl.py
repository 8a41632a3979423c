"""Whole models of DGL's examples, as users have them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.export_examples import IN, OUT

dgl = load_dgl()
fn, dglnn = dgl.function, dgl.nn


class GAT(nn.Module):
    """examples/pytorch/gat/train_ppi.py: heads by layer, residuals, a mean at the end."""

    def __init__(self, hidden=4, heads=(4, 4, 6)):
        super().__init__()
        self.gat_layers = nn.ModuleList()
        self.gat_layers.append(dglnn.GATConv(IN, hidden, heads[0], activation=F.elu))
        more = {"residual": True, "activation": F.elu}
        self.gat_layers.append(dglnn.GATConv(hidden * heads[0], hidden, heads[1], **more))
        more["activation"] = None
        self.gat_layers.append(dglnn.GATConv(hidden * heads[1], OUT, heads[2], **more))

    def forward(self, g, inputs):
        h = inputs
        for i, layer in enumerate(self.gat_layers):
            h = layer(g, h)
            h = h.mean(1) if i == 2 else h.flatten(1)
        return h


class Loops(nn.Module):
    """Self-loops made anew in forward, as training scripts do with their data."""

    def __init__(self, conv, change="both", weighted=False):
        super().__init__()
        self.conv, self.change, self.weighted = conv, change, weighted

    def forward(self, g, x):
        if self.change in ("both", "remove"):
            g = dgl.remove_self_loop(g)
        if self.change == "both":
            g = dgl.add_self_loop(g)
        if self.change == "add":
            g = g.add_self_loop()
        more = {"edge_weight": g.edata["w"]} if self.weighted else {}
        out = self.conv(g, x, **more).flatten(1)
        return out / (1.0 + g.in_degrees()).view(-1, 1)


class GatedGCN(nn.Module):
    """The layer of benchmarking-gnns: gates of edges, and their sum."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleDict({name: nn.Linear(IN, OUT) for name in "ABDE"})

    def forward(self, g, h):
        with g.local_scope():
            for name, lin in self.lins.items():
                g.ndata[f"{name}h"] = lin(h)
            g.apply_edges(fn.u_add_v("Dh", "Eh", "DEh"))
            g.edata["sigma"] = torch.sigmoid(g.edata["DEh"])
            g.update_all(fn.u_mul_e("Bh", "sigma", "m"), fn.sum("m", "sum_sigma_h"))
            g.update_all(fn.copy_e("sigma", "m"), fn.sum("m", "sum_sigma"))
            return g.ndata["Ah"] + g.ndata["sum_sigma_h"] / (g.ndata["sum_sigma"] + 1e-6)


class HGTLayer(nn.Module):
    """examples/pytorch/hgt/model.py, with lists of Linear layers by number."""

    def __init__(self, node_dict, edge_dict, dim=8, n_heads=2):
        super().__init__()
        self.node_dict, self.edge_dict = node_dict, edge_dict
        self.n_heads, self.d_k = n_heads, dim // n_heads
        for name in ("k_linears", "q_linears", "v_linears", "a_linears"):
            setattr(self, name, nn.ModuleList(nn.Linear(dim, dim) for _ in node_dict))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in node_dict)
        of_heads = (len(edge_dict), n_heads, self.d_k, self.d_k)
        self.relation_pri = nn.Parameter(torch.ones(len(edge_dict), n_heads))
        self.relation_att = nn.Parameter(torch.empty(of_heads))
        self.relation_msg = nn.Parameter(torch.empty(of_heads))
        nn.init.xavier_uniform_(self.relation_att)
        nn.init.xavier_uniform_(self.relation_msg)
        self.skip = nn.Parameter(torch.ones(len(node_dict)))
        self.drop = nn.Dropout(0.2)

    def forward(self, G, h):
        with G.local_scope():
            for srctype, etype, dsttype in G.canonical_etypes:
                sub_graph, e_id = G[srctype, etype, dsttype], self.edge_dict[etype]
                source, target = self.node_dict[srctype], self.node_dict[dsttype]
                shape = (-1, self.n_heads, self.d_k)
                k = self.k_linears[source](h[srctype]).view(*shape)
                v = self.v_linears[source](h[srctype]).view(*shape)
                q = self.q_linears[target](h[dsttype]).view(*shape)
                sub_graph.srcdata["k"] = torch.einsum("bij,ijk->bik", k, self.relation_att[e_id])
                v = torch.einsum("bij,ijk->bik", v, self.relation_msg[e_id])
                sub_graph.srcdata[f"v_{e_id}"] = v
                sub_graph.dstdata["q"] = q
                sub_graph.apply_edges(fn.v_dot_u("q", "k", "t"))
                score = sub_graph.edata.pop("t").sum(-1) * self.relation_pri[e_id]
                score = dgl.ops.edge_softmax(sub_graph, score / math.sqrt(self.d_k), norm_by="dst")
                sub_graph.edata["t"] = score.unsqueeze(-1)
            messages = {
                etype: (fn.u_mul_e(f"v_{e_id}", "t", "m"), fn.sum("m", "t"))
                for etype, e_id in self.edge_dict.items()
            }
            G.multi_update_all(messages, cross_reducer="mean")
            return {ntype: self._updated(G, h, ntype) for ntype in G.ntypes}

    def _updated(self, G, h, ntype):
        at = self.node_dict[ntype]
        alpha = torch.sigmoid(self.skip[at])
        t = G.nodes[ntype].data["t"].view(-1, self.n_heads * self.d_k)
        out = self.drop(self.a_linears[at](t))
        return self.norms[at](out * alpha + h[ntype] * (1 - alpha))


class HGT(nn.Module):
    """The model of the same example."""

    def __init__(self, sizes, relations):
        super().__init__()
        self.node_dict = {name: at for at, name in enumerate(sizes)}
        edge_dict = {name.split(":")[1]: at for at, name in enumerate(relations)}
        self.adapt_ws = nn.ModuleList(nn.Linear(size, 8) for size in sizes.values())
        self.gcs = nn.ModuleList(HGTLayer(self.node_dict, edge_dict) for _ in range(2))
        self.out = nn.Linear(8, OUT)

    def forward(self, G, features):
        h = {name: F.gelu(self.adapt_ws[at](features[name])) for name, at in self.node_dict.items()}
        for gc in self.gcs:
            h = gc(G, h)
        return {name: self.out(x) for name, x in h.items()}


GRAPH = {
    "nodes": {"user": 5, "game": 4},
    "edges": ["user:follows:user", "user:plays:game", "game:played_by:user"],
}
EXAMPLES = {
    "gat ppi": GAT,
    "gated gcn": GatedGCN,
    "loops": lambda: Loops(dglnn.GraphConv(IN, OUT)),
    "loops added": lambda: Loops(dglnn.GATConv(IN, OUT, 2), "add"),
    "loops removed": lambda: Loops(dglnn.SAGEConv(IN, OUT, "mean"), "remove"),
    "loops weighted": lambda: Loops(dglnn.GraphConv(IN, OUT), weighted=True),
    "loops weighted and added": lambda: Loops(dglnn.GraphConv(IN, OUT), "add", weighted=True),
    "loops weighted and removed": lambda: Loops(dglnn.GraphConv(IN, OUT), "remove", weighted=True),
}
