"""Models as the examples of DGL write them; nothing here is shaped for export."""

# ruff: noqa: RET504, SIM108 - written as the examples are.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.export_models import HIDDEN, IN, OUT

dgl = load_dgl()
dglnn = dgl.nn.pytorch
fn = dgl.function


class GCN(nn.Module):
    """examples/pytorch/gcn/train.py."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(dglnn.GraphConv(IN, HIDDEN, activation=F.relu))
        self.layers.append(dglnn.GraphConv(HIDDEN, OUT))
        self.dropout = nn.Dropout(0.5)

    def forward(self, g, features):
        h = features
        for i, layer in enumerate(self.layers):
            if i != 0:
                h = self.dropout(h)
            h = layer(g, h)
        return h


class SAGE(nn.Module):
    """examples/pytorch/graphsage/node_classification.py."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(dglnn.SAGEConv(IN, HIDDEN, "mean"))
        self.layers.append(dglnn.SAGEConv(HIDDEN, HIDDEN, "gcn"))
        self.layers.append(dglnn.SAGEConv(HIDDEN, OUT, "pool"))
        self.dropout = nn.Dropout(0.5)

    def forward(self, blocks, x):
        h = x
        for l, (layer, block) in enumerate(zip(self.layers, blocks)):  # noqa: B905, E741
            h = layer(block, h)
            if l != len(self.layers) - 1:
                h = F.relu(h)
                h = self.dropout(h)
        return h


class GAT(nn.Module):
    """examples/pytorch/gat/train.py."""

    def __init__(self) -> None:
        super().__init__()
        self.gat_layers = nn.ModuleList()
        self.gat_layers.append(
            dglnn.GATConv(IN, 4, 3, feat_drop=0.6, attn_drop=0.6, activation=F.elu)
        )
        self.gat_layers.append(
            dglnn.GATConv(12, OUT, 2, feat_drop=0.6, attn_drop=0.6, residual=True, activation=None)
        )

    def forward(self, g, inputs):
        h = inputs
        for i, layer in enumerate(self.gat_layers):
            h = layer(g, h)
            if i == 1:  # last layer
                h = h.mean(1)
            else:  # other layer(s)
                h = h.flatten(1)
        return h


class MLP(nn.Module):
    """Of examples/pytorch/gin/train.py."""

    def __init__(self, input_dim: int, hidden_dim: int, output_dim: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList()
        self.linears.append(nn.Linear(input_dim, hidden_dim, bias=False))
        self.linears.append(nn.Linear(hidden_dim, output_dim, bias=False))
        self.batch_norm = nn.BatchNorm1d(hidden_dim)

    def forward(self, x):
        h = x
        h = F.relu(self.batch_norm(self.linears[0](h)))
        return self.linears[1](h)


class GIN(nn.Module):
    """examples/pytorch/gin/train.py, without the pooling of whole graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.ginlayers = nn.ModuleList()
        self.batch_norms = nn.ModuleList()
        for layer in range(2):
            mlp = MLP(IN if layer == 0 else HIDDEN, HIDDEN, HIDDEN)
            self.ginlayers.append(dglnn.GINConv(mlp, learn_eps=False))
            self.batch_norms.append(nn.BatchNorm1d(HIDDEN))
        self.linear_prediction = nn.ModuleList()
        for layer in range(3):
            self.linear_prediction.append(nn.Linear(IN if layer == 0 else HIDDEN, OUT))
        self.drop = nn.Dropout(0.5)

    def forward(self, g, h):
        hidden_rep = [h]
        for i, layer in enumerate(self.ginlayers):
            h = layer(g, h)
            h = self.batch_norms[i](h)
            h = F.relu(h)
            hidden_rep.append(h)
        score_over_layer = 0
        for i, h in enumerate(hidden_rep):
            score_over_layer += self.drop(self.linear_prediction[i](h))
        return score_over_layer


class JKNet(nn.Module):
    """examples/pytorch/jknet/model.py."""

    def __init__(self, mode="cat") -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.layers = nn.ModuleList()
        self.layers.append(dglnn.GraphConv(IN, HIDDEN, activation=F.relu))
        self.layers.append(dglnn.GraphConv(HIDDEN, HIDDEN, activation=F.relu))
        self.jump = dglnn.JumpingKnowledge(mode, HIDDEN, 2)
        self.output = nn.Linear(2 * HIDDEN if mode == "cat" else HIDDEN, OUT)

    def forward(self, g, feats):
        feat_lst = []
        for layer in self.layers:
            feats = self.dropout(layer(g, feats))
            feat_lst.append(feats)
        g.ndata["h"] = self.jump(feat_lst)
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
        return self.output(g.ndata["h"])


class APPNP(nn.Module):
    """examples/pytorch/appnp/appnp.py, its graph as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)])
        self.propagate = dglnn.APPNPConv(3, 0.1, 0.5)

    def forward(self, g, features):
        h = F.relu(self.layers[0](features))
        h = self.layers[-1](h)
        h = self.propagate(g, h)
        return h


class WeightedSAGE(nn.Module):
    """The user guide's chapter on message passing: weights of edges, a local scope."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(IN * 2, OUT)

    def forward(self, g):
        h = g.ndata["feat"]
        with g.local_scope():
            g.ndata["h"] = h
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.mean("m", "h_N"))
            h_N = g.ndata["h_N"]
            h_total = nn.functional.relu_(g.ndata["h"].tanh())
            return self.linear(torch.cat([h_total, h_N], dim=1))


class Scores(nn.Module):
    """The user guide's apply_edges, built in and of the user's own, before a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(2 * IN, OUT)
        self.out = nn.Linear(IN, OUT)

    def apply_edges(self, edges):
        score = self.W(torch.cat([edges.src["h"], edges.dst["h"]], 1))
        return {"score": torch.tanh(score)}

    def forward(self, graph, h):
        with graph.local_scope():
            graph.ndata["h"] = h
            graph.ndata["o"] = self.out(h)
            graph.apply_edges(self.apply_edges)
            graph.apply_edges(fn.u_dot_v("h", "h", "close"))
            graph.edata["m"] = graph.edata["score"] * torch.sigmoid(graph.edata["close"])
            graph.update_all(fn.u_mul_e("o", "m", "m"), fn.sum("m", "o"))
            return graph.ndata["o"]


DGL = {
    "gcn": GCN,
    "sage": SAGE,
    "gat": GAT,
    "gin": GIN,
    "jknet": JKNet,
    "jknet lstm": lambda: JKNet("lstm"),
    "appnp": APPNP,
    "weighted sage": WeightedSAGE,
    "scores": Scores,
}
