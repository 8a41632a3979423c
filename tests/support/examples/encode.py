"""PyG's examples of encoders, autoencoders, deep and sampled models, on graphs of one node type."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.examples.case import OUT, WIDTH
from tests.support.examples.pyg import HIDDEN, example
from tests.support.export_texts import made
from tests.support.pyg import pyg


class Encoder(nn.Module):
    """Mean and logarithm of the deviation, as variational autoencoders have them."""

    def __init__(self, variational=True):
        super().__init__()
        self.conv1, self.conv_mu = pyg.GCNConv(WIDTH, HIDDEN), pyg.GCNConv(HIDDEN, OUT)
        self.conv_logstd = pyg.GCNConv(HIDDEN, OUT) if variational else None

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        mean = self.conv_mu(x, edge_index)
        return mean if self.conv_logstd is None else (mean, self.conv_logstd(x, edge_index))


class Linear(nn.Module):
    """An encoder that is one convolution."""

    def __init__(self, variational=False):
        super().__init__()
        self.conv_mu = pyg.GCNConv(WIDTH, OUT)
        self.conv_logstd = pyg.GCNConv(WIDTH, OUT) if variational else None

    def forward(self, x, edge_index):
        mean = self.conv_mu(x, edge_index)
        return mean if self.conv_logstd is None else (mean, self.conv_logstd(x, edge_index))


def adversarial():
    discriminator = nn.Sequential(nn.Linear(OUT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))
    return pyg.ARGVA(Encoder(), discriminator)


class Inductive(nn.Module):
    """The encoder of DeepGraphInfomax on sampled graphs, whose first nodes are the batch."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(WIDTH, HIDDEN), pyg.SAGEConv(HIDDEN, HIDDEN)])
        self.activations = nn.ModuleList([nn.PReLU(HIDDEN), nn.PReLU(HIDDEN)])

    def forward(self, x, edge_index, batch_size):
        for conv, act in zip(self.convs, self.activations, strict=True):
            x = act(conv(x, edge_index))
        return x[:batch_size]


class Transductive(nn.Module):
    """The encoder of DeepGraphInfomax on a whole graph."""

    def __init__(self):
        super().__init__()
        self.conv, self.prelu = pyg.GCNConv(WIDTH, HIDDEN), nn.PReLU(HIDDEN)

    def forward(self, x, edge_index):
        return self.prelu(self.conv(x, edge_index))


def infomax(encoder):
    def summary(z, *_args, **_kwargs):
        return z.mean(dim=0).sigmoid()

    def corruption(x, edge_index, *rest):
        return x[torch.randperm(x.size(0))], edge_index, *rest

    return pyg.DeepGraphInfomax(HIDDEN, encoder=encoder, summary=summary, corruption=corruption)


class ClusterPPI(nn.Module):
    """Layers with norms before the activation, the last one alone."""

    def __init__(self):
        super().__init__()
        convs = [(WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUT)]
        self.convs = nn.ModuleList(pyg.ClusterGCNConv(*ends, diag_lambda=1) for ends in convs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(2))

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs[:-1], self.norms, strict=True):
            x = F.dropout(F.relu(norm(conv(x, edge_index))), p=0.2, training=self.training)
        return self.convs[-1](x, edge_index)


class Lightning(nn.Module):
    """A LightningModule's parts: the model, and norms between its layers."""

    def __init__(self):
        super().__init__()
        self.gnn = pyg.GraphSAGE(WIDTH, HIDDEN, 2, OUT, dropout=0.5, norm=pyg.BatchNorm(HIDDEN))

    def forward(self, x, edge_index):
        return self.gnn(x, edge_index)


class GIN(nn.Module):
    """Pooled for whole graphs; what is pooled are the embeddings of nodes."""

    def __init__(self):
        super().__init__()
        mlp = pyg.MLP([WIDTH, HIDDEN, HIDDEN])
        self.conv, self.lin = pyg.GINConv(mlp, train_eps=False), nn.Linear(HIDDEN, OUT)

    def encode(self, x, edge_index):
        return self.conv(x, edge_index).relu()

    def forward(self, x, edge_index, batch):
        return self.lin(pyg.global_add_pool(self.encode(x, edge_index), batch))


class GPS(nn.Module):
    """Attention over all nodes beside a convolution."""

    def __init__(self, attention):
        super().__init__()
        mlp = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        self.lin = nn.Linear(WIDTH, HIDDEN)
        self.conv = pyg.GPSConv(HIDDEN, pyg.GINConv(mlp), heads=2, attn_type=attention)

    def forward(self, x, edge_index, batch):
        return self.conv(self.lin(x), edge_index, batch)


def polynormer():
    """After the epochs of local attention alone."""
    model = pyg.Polynormer(WIDTH, HIDDEN, OUT)
    model._global = True
    return model


class LabelPropagation(nn.Module):
    """Labels as columns of the features."""

    def __init__(self):
        super().__init__()
        self.propagate = pyg.LabelPropagation(num_layers=3, alpha=0.9)

    def forward(self, x, edge_index):
        return self.propagate(x, edge_index)


TABLE = {"tables": {"": "embedding"}}

EXAMPLES = [
    example("examples/argva_node_clustering.py", adversarial),
    example("examples/autoencoder.py", lambda: pyg.GAE(Encoder(False))),
    example("examples/autoencoder.py --linear", lambda: pyg.GAE(Linear())),
    example("examples/autoencoder.py --variational", lambda: pyg.VGAE(Encoder())),
    example("examples/autoencoder.py --linear --variational", lambda: pyg.VGAE(Linear(True))),
    example("examples/cluster_gcn_ppi.py", ClusterPPI),
    example("examples/compile/gcn.py", lambda: torch.compile(made("models.txt", "gcn")())),
    example("examples/correct_and_smooth.py", made("examples.txt", "correct_and_smooth")),
    example("examples/dna.py", made("examples.txt", "dna")),
    example("examples/geniepath.py", made("recurrent.txt", "genie path")),
    example("examples/geniepath.py GeniePathLazy", made("recurrent.txt", "genie path, lazy")),
    example(
        "examples/graph_gps.py --attn_type multihead",
        lambda: GPS("multihead"),
        refused="attention over all pairs",
        line="a softmax over all pairs of nodes; `--attn_type performer` has none",
    ),
    example("examples/graph_gps.py --attn_type performer", lambda: GPS("performer")),
    example("examples/graph_sage_unsup.py", lambda: pyg.GraphSAGE(WIDTH, HIDDEN, 2)),
    example(
        "examples/graph_unet.py",
        lambda: pyg.GraphUNet(WIDTH, HIDDEN, OUT, depth=2, pool_ratios=0.5),
        refused="coalesce makes other edges than the job's",
        line="pooling makes another graph",
    ),
    example("examples/infomax_inductive.py", lambda: infomax(Inductive())),
    example("examples/infomax_transductive.py", lambda: infomax(Transductive())),
    example(
        "examples/label_prop.py",
        LabelPropagation,
        options={"width": OUT},
        line="`forward(self, x, edge_index)` around it, with labels as features; `--width 4`",
    ),
    example(
        "examples/lightgcn.py",
        lambda: pyg.LightGCN(40, 8, 2),
        method="get_embedding",
        options=TABLE,
        line="`.get_embedding`, `--table embedding`",
    ),
    example(
        "examples/link_pred.py",
        made("examples.txt", "link_pred"),
        method="encode",
        line="`.encode`",
    ),
    example(
        "examples/linkx.py",
        lambda: pyg.LINKX(40, WIDTH, HIDDEN, OUT, 2),
        refused="a message takes something else than a tensor of the nodes",
        line="has a row of weights for each node of the graph that it was trained on",
    ),
    example(
        "examples/mutag_gin.py", GIN, method="encode", line="`.encode`, a method for what is pooled"
    ),
    example(
        "examples/ogbn_train.py --model graphsage",
        lambda: pyg.GraphSAGE(WIDTH, HIDDEN, 2, OUT, dropout=0.5, norm="batch_norm"),
    ),
    example(
        "examples/ogbn_train.py --model gat",
        lambda: pyg.GAT(WIDTH, HIDDEN, 2, OUT, heads=2, norm="batch_norm", v2=True),
    ),
    example(
        "examples/ogbn_train.py --model polynormer", lambda: pyg.Polynormer(WIDTH, HIDDEN, OUT)
    ),
    example("examples/ogbn_train.py --model polynormer, global", polynormer),
    example(
        "examples/ogbn_train.py --model sgformer",
        lambda: pyg.SGFormer(WIDTH, HIDDEN, OUT, trans_num_heads=2),
    ),
    example("examples/pmlp.py", lambda: pyg.PMLP(WIDTH, HIDDEN, OUT, num_layers=2)),
    example("examples/ppi.py", made("models.txt", "ppi")),
    example("examples/pytorch_lightning/graph_sage.py", Lightning),
    example("examples/rect.py", lambda: pyg.RECT_L(WIDTH, HIDDEN)),
    example("examples/rev_gnn.py", made("examples.txt", "rev_gnn")),
    example("examples/sign.py", made("examples.txt", "sign"), line="its transform in forward"),
]
