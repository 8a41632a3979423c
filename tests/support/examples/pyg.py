"""PyG's examples of single convolutions, on graphs of one node type."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.examples.case import EDGE_FEATURES, OUT, WIDTH, Example
from tests.support.pyg import pyg

HIDDEN = 8


class Stack(nn.Module):
    """Convolutions one after another with dropout and an activation between them."""

    def __init__(self, *convs, act=F.relu):
        super().__init__()
        self.convs, self.act = nn.ModuleList(convs), act

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = F.dropout(x, p=0.5, training=self.training)
            x = self.act(conv(x, edge_index))
        x = F.dropout(x, p=0.5, training=self.training)
        return F.log_softmax(self.convs[-1](x, edge_index), dim=1)


class AGNN(nn.Module):
    """Two propagations by cosine between linear layers."""

    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.prop1, self.prop2 = pyg.AGNNConv(requires_grad=False), pyg.AGNNConv()

    def forward(self, x, edge_index):
        x = F.relu(self.lin1(F.dropout(x, training=self.training)))
        x = self.prop2(self.prop1(x, edge_index), edge_index)
        return F.log_softmax(self.lin2(x), dim=1)


class EGC(nn.Module):
    """Residual layers with norms over the batch."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(WIDTH, HIDDEN)
        convs = [pyg.EGConv(HIDDEN, HIDDEN, ["symnorm"], 2, 2) for _ in range(2)]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in convs)

    def forward(self, x, edge_index):
        x = self.encoder(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x, edge_index)).relu_()
        return x


class FiLM(nn.Module):
    """Norms between layers whose messages are scaled and shifted by the target."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.FiLMConv(WIDTH, HIDDEN), pyg.FiLMConv(HIDDEN, HIDDEN)])
        self.convs.append(pyg.FiLMConv(HIDDEN, OUT, act=None))
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(2))

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs[:-1], self.norms, strict=True):
            x = F.dropout(norm(conv(x, edge_index)), p=0.1, training=self.training)
        return self.convs[-1](x, edge_index)


class GCN2(nn.Module):
    """Every layer reads the first one's rows."""

    def __init__(self, shared_weights):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)])
        self.convs = nn.ModuleList(
            pyg.GCN2Conv(HIDDEN, 0.1, 0.5, layer, shared_weights, normalize=True)
            for layer in (1, 2, 3)
        )

    def forward(self, x, edge_index):
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, 0.6, training=self.training), x_0, edge_index).relu()
        return self.lins[1](x).log_softmax(dim=-1)


class MixHop(nn.Module):
    """Powers of the adjacency side by side, with norms."""

    def __init__(self):
        super().__init__()
        self.conv1 = pyg.MixHopConv(WIDTH, HIDDEN, powers=[0, 1, 2])
        self.norm = nn.BatchNorm1d(3 * HIDDEN)
        self.conv2 = pyg.MixHopConv(3 * HIDDEN, HIDDEN, powers=[0, 1, 2])
        self.lin = nn.Linear(3 * HIDDEN, OUT)

    def forward(self, x, edge_index):
        x = self.norm(self.conv1(x, edge_index))
        return self.lin(self.conv2(F.dropout(x, p=0.9, training=self.training), edge_index))


class SuperGAT(nn.Module):
    """Attention that is also trained on edges, which evaluation leaves out."""

    def __init__(self):
        super().__init__()
        options = {"dropout": 0.6, "attention_type": "MX", "edge_sample_ratio": 0.8}
        self.conv1 = pyg.SuperGATConv(WIDTH, 4, heads=2, **options)
        self.conv2 = pyg.SuperGATConv(8, OUT, heads=2, concat=False, **options)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index))
        return self.conv2(x, edge_index).log_softmax(dim=-1)


class GraphSAINT(nn.Module):
    """Layers 1 to 3 side by side; a sampled graph has weights of edges."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.GraphConv(WIDTH, HIDDEN), pyg.GraphConv(HIDDEN, HIDDEN)])
        self.lin = nn.Linear(2 * HIDDEN, OUT)

    def forward(self, x0, edge_index, edge_weight=None):
        x1 = F.relu(self.convs[0](x0, edge_index, edge_weight))
        x2 = F.relu(self.convs[1](x1, edge_index, edge_weight))
        return self.lin(torch.cat([x1, x2], dim=-1)).log_softmax(dim=-1)


class DeeperGCN(nn.Module):
    """Residual blocks over encoded features of edges."""

    def __init__(self):
        super().__init__()
        self.node_encoder = nn.Linear(WIDTH, HIDDEN)
        self.edge_encoder = nn.Linear(EDGE_FEATURES, HIDDEN)
        self.layers = nn.ModuleList(self.block() for _ in range(2))
        self.lin = nn.Linear(HIDDEN, OUT)

    def block(self):
        options = {"aggr": "softmax", "t": 1.0, "learn_t": True, "num_layers": 2, "norm": "layer"}
        conv = pyg.GENConv(HIDDEN, HIDDEN, **options)
        norm = nn.LayerNorm(HIDDEN, elementwise_affine=True)
        return pyg.DeepGCNLayer(conv, norm, nn.ReLU(inplace=True), block="res+", dropout=0.1)

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr = self.node_encoder(x), self.edge_encoder(edge_attr)
        x = self.layers[0].conv(x, edge_index, edge_attr)
        for layer in self.layers[1:]:
            x = layer(x, edge_index, edge_attr)
        return self.lin(self.layers[0].act(self.layers[0].norm(x)))


class PNA(nn.Module):
    """Encoded features of nodes and edges, all aggregators and scalers."""

    def __init__(self):
        super().__init__()
        self.node, self.edge = nn.Linear(WIDTH, HIDDEN), nn.Linear(EDGE_FEATURES, 6)
        self.conv = pyg.PNAConv(
            HIDDEN, HIDDEN, ["mean", "min", "max", "std"],
            ["identity", "amplification", "attenuation"], torch.tensor([1, 4, 5, 3, 2]),
            edge_dim=6, towers=2, pre_layers=1, post_layers=1, divide_input=False,
        )  # fmt: skip
        self.norm = pyg.BatchNorm(HIDDEN)

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr = self.node(x), self.edge(edge_attr)
        return F.relu(self.norm(self.conv(x, edge_index, edge_attr)))


class UniMP(nn.Module):
    """Attention as Transformers have it, with gated residuals."""

    def __init__(self):
        super().__init__()
        self.conv1 = pyg.TransformerConv(WIDTH, HIDDEN // 2, heads=2, beta=True, dropout=0.3)
        self.norm = nn.LayerNorm(HIDDEN)
        self.conv2 = pyg.TransformerConv(HIDDEN, OUT, heads=2, concat=False, beta=True)

    def forward(self, x, edge_index):
        return self.conv2(self.norm(self.conv1(x, edge_index)).relu(), edge_index)


class TGN(nn.Module):
    """The embedding of a temporal network: what edges carry takes part in attention."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.TransformerConv(WIDTH, 4, heads=2, dropout=0.1, edge_dim=EDGE_FEATURES)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr)


class Directed(nn.Module):
    """A convolution each way."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.DirGNNConv(pyg.SAGEConv(WIDTH, OUT), alpha=0.5, root_weight=False)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def example(path, make, **more):
    return Example("PyG", path, make, **more)


EXAMPLES = [
    example(
        "examples/agnn.py",
        AGNN,
        line="`forward(self, x, edge_index)`: the example's reads a global `data`",
    ),
    example(
        "examples/arma.py",
        lambda: Stack(
            pyg.ARMAConv(
                WIDTH, HIDDEN, num_stacks=3, num_layers=2, shared_weights=True, dropout=0.25
            ),
            pyg.ARMAConv(
                HIDDEN, OUT, num_stacks=3, num_layers=2, shared_weights=True, act=lambda x: x
            ),
        ),
    ),
    example(
        "examples/dir_gnn.py",
        Directed,
        refused="edges that were changed",
        line="turns edges in forward; `reverse` in the manifest makes them a relation (HeteroConv)",
    ),
    example("examples/egc.py", EGC),
    example("examples/film.py", FiLM),
    example(
        "examples/gat.py",
        lambda: Stack(
            pyg.GATConv(WIDTH, HIDDEN, heads=2, dropout=0.6),
            pyg.GATConv(2 * HIDDEN, OUT, heads=1, concat=False, dropout=0.6),
            act=F.elu,
        ),
    ),
    example("examples/gcn.py", lambda: Stack(pyg.GCNConv(WIDTH, HIDDEN), pyg.GCNConv(HIDDEN, OUT))),
    example("examples/gcn2_cora.py", lambda: GCN2(True)),
    example("examples/gcn2_ppi.py", lambda: GCN2(False)),
    example(
        "examples/graph_saint.py",
        GraphSAINT,
        options={"inputs": {"x0": "x"}},
        line='`--inputs \'{"x0": "x"}\'`',
    ),
    example("examples/mixhop.py", MixHop),
    example(
        "examples/ogbn_proteins_deepgcn.py",
        DeeperGCN,
        options={"edge_features": EDGE_FEATURES},
        line="`--edge-features 3`",
    ),
    example(
        "examples/pna.py", PNA, options={"edge_features": EDGE_FEATURES}, line="`--edge-features 3`"
    ),
    example(
        "examples/reddit.py", lambda: Stack(pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(HIDDEN, OUT))
    ),
    example(
        "examples/sgc.py",
        lambda: Stack(pyg.SGConv(WIDTH, OUT, K=2, cached=True)),
        line="`forward(self, x, edge_index)`: the example's reads a global `data`",
    ),
    example(
        "examples/super_gat.py",
        SuperGAT,
        line="`forward(self, x, edge_index)`: the example's reads a global `data`",
    ),
    example(
        "examples/tagcn.py",
        lambda: Stack(pyg.TAGConv(WIDTH, HIDDEN), pyg.TAGConv(HIDDEN, OUT)),
        line="`forward(self, x, edge_index)`: the example's reads a global `data`",
    ),
    example("examples/tgn.py", TGN),
    example("examples/unimp_arxiv.py", UniMP),
]
