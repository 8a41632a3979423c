"""Models that read features of edges, as DGL's examples write them; not shaped for export."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.export_models import HIDDEN, IN, OUT
from tests.support.export_models_edges import K

dgl = load_dgl()
dglnn = dgl.nn.pytorch
fn = dgl.function


class EdgeGat(nn.Module):
    """EdgeGATConv twice; the features come as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = dglnn.EdgeGATConv(IN, K, 4, 2, residual=False, activation=F.elu)
        self.conv2 = dglnn.EdgeGATConv(8, K, OUT, 2)

    def forward(self, g, h, e_feat):
        h = self.conv1(g, h, e_feat).flatten(1)
        return self.conv2(g, h, e_feat).mean(1)


class Gine(nn.Module):
    """GINEConv, the features read from the graph, projected to the nodes' columns."""

    def __init__(self) -> None:
        super().__init__()
        self.lin_e, self.lin_v = nn.Linear(K, HIDDEN), nn.Linear(IN, HIDDEN)
        self.conv = dglnn.GINEConv(nn.Linear(HIDDEN, OUT), learn_eps=True)

    def forward(self, g, feat):
        return self.conv(g, self.lin_v(feat), self.lin_e(g.edata["feat"]))


class WSAGELayer(nn.Module):
    """E-GraphSAGE: a message function of one's own reads ``edges.data``."""

    def __init__(self, ndim_in, edims, ndim_out) -> None:
        super().__init__()
        self.W_msg = nn.Linear(ndim_in + edims, ndim_out)
        self.W_apply = nn.Linear(ndim_in + ndim_out, ndim_out)

    def message_func(self, edges):
        return {"m": self.W_msg(torch.cat([edges.src["h"], edges.data["h"]], 1))}

    def forward(self, g_dgl, nfeats, efeats):
        with g_dgl.local_scope():
            g = g_dgl
            g.ndata["h"] = nfeats
            g.edata["h"] = efeats
            g.update_all(self.message_func, fn.mean("m", "h_neigh"))
            g.ndata["h"] = F.relu(self.W_apply(torch.cat([g.ndata["h"], g.ndata["h_neigh"]], 1)))
            return g.ndata["h"]


class Sage(nn.Module):
    """Two such layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([WSAGELayer(IN, K, HIDDEN), WSAGELayer(HIDDEN, K, OUT)])

    def forward(self, g, nfeats, efeats):
        for layer in self.layers:
            nfeats = layer(g, nfeats, efeats)
        return nfeats


class Builtin(nn.Module):
    """The guide's built-in functions on edges: e_add_v, u_mul_e, copy_e; a weight beside."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node = nn.Linear(K, HIDDEN), nn.Linear(IN, HIDDEN)
        self.out = nn.Linear(3 * HIDDEN, OUT)

    def forward(self, g):
        with g.local_scope():
            g.ndata["h"] = self.node(g.ndata["feat"])
            g.edata["z"] = self.edge(g.edata["efeat"])
            g.apply_edges(fn.e_add_v("z", "h", "both"))
            g.edata["shift"] = g.edata["both"].tanh() * g.edata["w"].unsqueeze(-1)
            g.update_all(fn.copy_e("shift", "m"), fn.sum("m", "a"))
            g.update_all(fn.u_mul_e("h", "z", "m"), fn.max("m", "b"))
            g.update_all(fn.copy_e("z", "m"), fn.mean("m", "c"))
            return self.out(torch.cat([g.ndata["a"], g.ndata["b"], g.ndata["c"]], dim=1))


class EdgeNet(nn.Module):
    """NNConv: a matrix for each edge."""

    def __init__(self) -> None:
        super().__init__()
        net = nn.Sequential(nn.Linear(K, 4), nn.ReLU(), nn.Linear(4, IN * OUT))
        self.conv = dglnn.NNConv(IN, OUT, net)

    def forward(self, g, feat, efeat):
        return self.conv(g, feat, efeat)


class Hetero(nn.Module):
    """Features of the edges of one relation, read by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 5)

    def forward(self, g, feat):
        with g.local_scope():
            g.nodes["user"].data["h"] = feat["user"]
            g.edges["buys"].data["e"] = self.lin(g.edges["buys"].data["feat"])
            g.update_all(fn.u_add_e("h", "e", "m"), fn.mean("m", "n"), etype="buys")
            return g.nodes["item"].data["n"]


DGL = {"edge gat": EdgeGat, "gine": Gine, "e-sage": Sage, "built-in": Builtin, "nnconv": EdgeNet}
