"""DGL's examples of transductive learning, whose modules keep the graph that they are made with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.examples.case import EDGE_FEATURES, OUT, WIDTH, Example

dgl = load_dgl()
dglnn = dgl.nn.pytorch
HIDDEN = 8
ZOO = "examples/pytorch/model_zoo/citation_network/models.py"


def dataset():
    """The graph of a training script."""
    return dgl.graph(([0, 1, 2, 2, 3], [1, 2, 0, 2, 3]))


class Kept(nn.Module):
    """Layers over one graph, with dropout between them."""

    def __init__(self, *layers, activation=None):
        super().__init__()
        self.g, self.layers = dataset(), nn.ModuleList(layers)
        self.dropout, self.activation = nn.Dropout(0.5), activation

    def forward(self, features):
        h = features
        for number, layer in enumerate(self.layers):
            if number:
                h = self.dropout(h if self.activation is None else self.activation(h))
            h = layer(self.g, h)
        return h


class GAT(Kept):
    """Heads are joined, and averaged at the end."""

    def forward(self, features):
        h = features
        for layer in self.layers[:-1]:
            h = layer(self.g, h).flatten(1)
        return self.layers[-1](self.g, h).mean(1)


class Cheb(Kept):
    """The largest eigenvalue is given as its bound."""

    def forward(self, features):
        h = features
        for layer in self.layers:
            h = layer(self.g, h, [2])
        return h


class APPNP(Kept):
    """A network of each node, then propagation."""

    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.propagate = dglnn.APPNPConv(3, 0.1, 0.5)

    def forward(self, features):
        h = self.lin2(F.relu(self.lin1(self.dropout(features))))
        return self.propagate(self.g, h)


class AGNN(Kept):
    """Attention by cosine between linear layers."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, HIDDEN), nn.ReLU())
        self.props = nn.ModuleList(dglnn.AGNNConv(1.0, learn_beta=True) for _ in range(2))
        self.cls = nn.Linear(HIDDEN, OUT)

    def forward(self, features):
        h = self.proj(features)
        for prop in self.props:
            h = prop(self.g, h)
        return self.cls(h)


class MoNet(nn.Module):
    """Kernels over pseudo coordinates of edges, which are their features."""

    def __init__(self):
        super().__init__()
        self.g = dataset()
        self.layers = nn.ModuleList(
            [dglnn.GMMConv(WIDTH, HIDDEN, 2, 3), dglnn.GMMConv(HIDDEN, OUT, 2, 3)]
        )
        self.proj = nn.ModuleList(
            nn.Sequential(nn.Linear(EDGE_FEATURES, 2), nn.Tanh()) for _ in range(2)
        )

    def forward(self, feat, pseudo):
        h = feat
        for layer, proj in zip(self.layers, self.proj, strict=True):
            h = layer(self.g, h, proj(pseudo))
        return h


class Infomax(Kept):
    """The encoder of DGI, whose corrupted features are drawn in training alone."""

    def forward(self, features, corrupt=False):
        if corrupt:
            features = features[torch.randperm(self.g.num_nodes())]
        return super().forward(features)


class RECT(Kept):
    """A layer over the graph, then one of each node."""

    def __init__(self):
        super().__init__(dglnn.GraphConv(WIDTH, HIDDEN, activation=nn.PReLU()))
        self.fc = nn.Linear(HIDDEN, WIDTH)

    def forward(self, inputs):
        return self.fc(super().forward(inputs))


def gin():
    mlps = [nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)]
    return Kept(*(dglnn.GINConv(mlp, "sum", 0.1, learn_eps=True) for mlp in mlps))


def example(path, make, **more):
    return Example("DGL", path, make, **more)


EXAMPLES = [
    example("examples/pytorch/dgi/dgi.py", lambda: Infomax(dglnn.GraphConv(WIDTH, HIDDEN))),
    example(f"{ZOO} AGNN", AGNN),
    example(f"{ZOO} APPNP", APPNP),
    example(
        f"{ZOO} ChebNet",
        lambda: Cheb(dglnn.ChebConv(WIDTH, HIDDEN, 2), dglnn.ChebConv(HIDDEN, OUT, 2)),
    ),
    example(
        f"{ZOO} GAT",
        lambda: GAT(
            dglnn.GATConv(WIDTH, 4, 2, residual=True), dglnn.GATConv(8, OUT, 2, residual=True)
        ),
    ),
    example(
        f"{ZOO} GCN",
        lambda: Kept(
            dglnn.GraphConv(WIDTH, HIDDEN, activation=F.relu), dglnn.GraphConv(HIDDEN, OUT)
        ),
    ),
    example(f"{ZOO} GIN", gin),
    example(
        f"{ZOO} GraphSAGE",
        lambda: Kept(
            dglnn.SAGEConv(WIDTH, HIDDEN, "mean"),
            dglnn.SAGEConv(HIDDEN, OUT, "pool"),
            activation=F.relu,
        ),
    ),
    example(f"{ZOO} SGC", lambda: Kept(dglnn.SGConv(WIDTH, OUT, k=2, cached=True, bias=True))),
    example(
        f"{ZOO} TAGCN",
        lambda: Kept(dglnn.TAGConv(WIDTH, HIDDEN, activation=F.relu), dglnn.TAGConv(HIDDEN, OUT)),
    ),
    example(
        "examples/pytorch/monet/citation.py",
        MoNet,
        options={"inputs": {"pseudo": "edge_features"}, "edge_features": EDGE_FEATURES},
        line='`--inputs \'{"pseudo": "edge_features"}\' --edge-features 3`',
    ),
    example("examples/pytorch/rect/model.py", RECT),
    example(
        "examples/pytorch/tagcn/tagcn.py",
        lambda: Kept(dglnn.TAGConv(WIDTH, HIDDEN, k=3), dglnn.TAGConv(HIDDEN, OUT, k=1)),
    ),
]
