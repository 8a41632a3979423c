"""DGL's examples whose modules are given a graph, or the blocks of a sampled one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.examples.case import EDGE_FEATURES, OUT, WIDTH
from tests.support.examples.kept import HIDDEN, example
from tests.support.export_texts import made

dgl = load_dgl()
dglnn, fn = dgl.nn.pytorch, dgl.function
OGB = "examples/pytorch/ogb"


class ARMA(nn.Module):
    """One stack, as the example's convolution sums it: by the graph, scaled at both ends."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Linear(WIDTH, OUT, bias=False), nn.Linear(WIDTH, OUT)

    def forward(self, g, feats):
        with g.local_scope():
            norm = torch.pow(g.in_degrees().float().clamp(min=1), -0.5).unsqueeze(1)
            g.ndata["h"] = feats * norm
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
            return F.relu(self.w(g.ndata.pop("h") * norm) + self.v(feats))


class BGRL(nn.Module):
    """The encoder reads features of the graph; norms and activations in turn."""

    def __init__(self):
        super().__init__()
        layers = [dglnn.GraphConv(WIDTH, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.PReLU()]
        self.layers = nn.ModuleList([*layers, dglnn.GraphConv(HIDDEN, OUT), nn.PReLU()])

    def forward(self, g):
        x = g.ndata["feat"]
        for layer in self.layers:
            x = layer(g, x) if isinstance(layer, dglnn.GraphConv) else layer(x)
        return x


class DAGNN(nn.Module):
    """Sums of 0 to K hops, weighed by a score of each node."""

    def __init__(self, hops=3):
        super().__init__()
        self.hops, self.s = hops, nn.Parameter(torch.rand(OUT, 1))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))

    def forward(self, graph, feats):
        with graph.local_scope():
            feats = self.mlp(feats)
            results = [feats]
            norm = torch.pow(graph.in_degrees().float().clamp(min=1), -0.5).unsqueeze(1)
            for _ in range(self.hops):
                graph.ndata["h"] = feats * norm
                graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
                feats = graph.ndata["h"] * norm
                results.append(feats)
            rows = torch.stack(results, dim=1)
            scores = torch.sigmoid(torch.matmul(rows, self.s))
            return torch.matmul(scores.permute(0, 2, 1), rows).squeeze(1)


class GATv2(nn.Module):
    """Heads of three layers, the last one averaged."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                dglnn.GATv2Conv(WIDTH, 4, 2, 0.1, 0.1, activation=F.elu, share_weights=True),
                dglnn.GATv2Conv(8, 4, 2, 0.1, 0.1, residual=True, activation=F.elu),
                dglnn.GATv2Conv(8, OUT, 1, 0.1, 0.1),
            ]
        )

    def forward(self, g, inputs):
        h = inputs
        for layer in self.layers[:-1]:
            h = layer(g, h).flatten(1)
        return self.layers[-1](g, h).mean(1)


class GIN(nn.Module):
    """Layers whose rows are summed for whole graphs; embeddings are what is summed."""

    def __init__(self):
        super().__init__()
        self.conv = dglnn.GINConv(nn.Linear(WIDTH, OUT), learn_eps=False)
        self.norm, self.pool = nn.BatchNorm1d(OUT), dglnn.SumPooling()

    def encode(self, g, h):
        return F.relu(self.norm(self.conv(g, h)))

    def forward(self, g, h):
        return self.pool(g, self.encode(g, h))


class Pooled(GIN):
    """The same as it is."""


class MixHop(nn.Module):
    """Powers of the normalised adjacency side by side."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(WIDTH, OUT, bias=False) for _ in range(3))

    def forward(self, graph, feats):
        with graph.local_scope():
            norm = torch.pow(graph.in_degrees().float().clamp(min=1), -0.5).unsqueeze(1)
            outs = [self.lins[0](feats)]
            for lin in self.lins[1:]:
                graph.ndata["h"] = feats * norm
                graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "h"))
                feats = graph.ndata.pop("h") * norm
                outs.append(lin(feats))
            return torch.cat(outs, dim=1)


class Arxiv(nn.Module):
    """Convolutions beside linear layers, with norms."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [dglnn.GraphConv(WIDTH, HIDDEN, "both", bias=False), dglnn.GraphConv(HIDDEN, OUT)]
        )
        self.linear, self.norm = nn.Linear(WIDTH, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN)

    def forward(self, graph, feat):
        h = self.convs[0](graph, feat) + self.linear(feat)
        return self.convs[1](graph, F.relu(self.norm(h)))


class EdgeGAT(nn.Module):
    """Attention by both ends and by what an edge carries."""

    def __init__(self, heads=2):
        super().__init__()
        self.heads = heads
        self.src_fc = nn.Linear(WIDTH, heads * OUT, bias=False)
        self.attn_src, self.attn_dst = nn.Linear(WIDTH, heads), nn.Linear(WIDTH, heads)
        self.attn_edge = nn.Linear(EDGE_FEATURES, heads, bias=False)

    def forward(self, graph, feat, efeat):
        with graph.local_scope():
            graph.srcdata["h"] = self.src_fc(feat).view(-1, self.heads, OUT)
            graph.srcdata["a"] = self.attn_src(feat).view(-1, self.heads, 1)
            graph.dstdata["b"] = self.attn_dst(feat).view(-1, self.heads, 1)
            graph.apply_edges(fn.u_add_v("a", "b", "score"))
            edge = self.attn_edge(efeat).view(-1, self.heads, 1)
            score = F.leaky_relu(graph.edata["score"] + edge, 0.2)
            graph.edata["p"] = dgl.nn.functional.edge_softmax(graph, score)
            graph.update_all(fn.u_mul_e("h", "p", "m"), fn.sum("m", "o"))
            return graph.dstdata["o"].flatten(1)


class Blocks(nn.Module):
    """Layers over the blocks of a sampled graph."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [dglnn.SAGEConv(WIDTH, HIDDEN, "mean"), dglnn.SAGEConv(HIDDEN, OUT, "mean")]
        )

    def forward(self, blocks, x):
        h = x
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=False)):
            h = layer(block, h)
            if number < len(self.layers) - 1:
                h = F.dropout(F.relu(h), training=self.training)
        return h


class NGNN(nn.Module):
    """More layers of each node within a convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = dglnn.GraphConv(WIDTH, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, OUT)

    def forward(self, g, x):
        return self.fc2(F.relu(self.fc(F.relu(self.conv(g, x)))))


class Residual(nn.Module):
    """Attention and linear layers, joined to a network of each node."""

    def __init__(self):
        super().__init__()
        self.l1 = dglnn.GATConv(WIDTH, 4, num_heads=2, residual=True)
        self.l2, self.mlp = dglnn.GATConv(8, OUT, num_heads=1, residual=True), nn.Linear(WIDTH, OUT)

    def forward(self, graph, features):
        h = self.l2(graph, self.l1(graph, features).flatten(1)).mean(1)
        return torch.cat([h, self.mlp(features)], 1)


class VGAE(nn.Module):
    """The mean that the encoder gives, without the noise of training."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                dglnn.GraphConv(WIDTH, HIDDEN, activation=F.relu),
                dglnn.GraphConv(HIDDEN, OUT, activation=lambda x: x),
                dglnn.GraphConv(HIDDEN, OUT, activation=lambda x: x),
            ]
        )

    def mean(self, g, features):
        return self.layers[1](g, self.layers[0](g, features))

    def forward(self, g, features):
        h = self.layers[0](g, features)
        noise = torch.randn(features.size(0), OUT)
        return self.layers[1](g, h) + noise * torch.exp(self.layers[2](g, h))


class Hard(nn.Module):
    """Attention over the neighbours with the largest scores."""

    def __init__(self):
        super().__init__()
        self.p, self.conv = nn.Parameter(torch.rand(1, WIDTH)), dglnn.GATConv(WIDTH, OUT, 1)

    def forward(self, graph, feat):
        graph.ndata["y"] = torch.abs((feat * self.p).sum(1))
        return self.conv(dgl.sampling.select_topk(graph, 2, "y"), feat).flatten(1)


EXAMPLES = [
    example("examples/pytorch/appnp/appnp.py", made("dgl_models.txt", "appnp")),
    example("examples/pytorch/arma/model.py", ARMA),
    example("examples/pytorch/bgnn/run.py", Residual),
    example("examples/pytorch/bgrl/model.py", BGRL, options={"width": WIDTH}, line="`--width 5`"),
    example("examples/pytorch/dagnn/main.py", DAGNN, line="`.clamp(min=1)` of the degrees"),
    example("examples/pytorch/gat/train.py", made("dgl_models.txt", "gat")),
    example("examples/pytorch/gat/train_ppi.py", made("dgl_examples.txt", "gat ppi")),
    example("examples/pytorch/gatv2/gatv2.py", GATv2),
    example("examples/pytorch/gcn/train.py", made("dgl_models.txt", "gcn")),
    example(
        "examples/pytorch/gin/train.py",
        GIN,
        method="encode",
        line="`.encode`, a method for what is pooled",
    ),
    example(
        "examples/pytorch/gin/train.py forward",
        Pooled,
        refused="readouts of whole graphs",
        line="a row for the whole graph",
    ),
    example("examples/pytorch/graphsage/node_classification.py", Blocks),
    example(
        "examples/pytorch/hardgat/hgao.py",
        Hard,
        refused="idtype is not known here",
        line="picks the neighbours with the largest scores",
    ),
    example("examples/pytorch/jknet/model.py", made("dgl_models.txt", "jknet")),
    example("examples/pytorch/jknet/model.py --mode lstm", made("dgl_models.txt", "jknet lstm")),
    example("examples/pytorch/mixhop/main.py", MixHop),
    example(f"{OGB}/ngnn/main.py", NGNN),
    example(f"{OGB}/ogbn-arxiv/models.py", Arxiv),
    example(
        f"{OGB}/ogbn-proteins/models.py",
        EdgeGAT,
        options={"edge_features": EDGE_FEATURES},
        line="`--edge-features 3`",
    ),
    example(
        "examples/pytorch/vgae/model.py",
        VGAE,
        method="mean",
        line="`.mean`, a method without the noise",
    ),
    example(
        "examples/pytorch/vgae/model.py forward",
        VGAE,
        refused="a constant of shape",
        line="draws random numbers; a method without them",
    ),
]
