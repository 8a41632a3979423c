"""DGL's examples of graphs with several node types and relations, on ``typed_world``'s graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from embertide.models.dgl_interop import load_dgl
from tests.support.examples.case import OUT
from tests.support.examples.kept import HIDDEN, example
from tests.support.examples.typed import FOLLOWS, GRAPH, NODES, TRIPLES, TYPED
from tests.support.export_texts import code_of

dgl = load_dgl()
dglnn, fn = dgl.nn.pytorch, dgl.function
NAMES = [name for _, name, _ in TRIPLES]


class RelGraphConv(nn.Module):
    """Weights of relations from bases, a self-loop, a bias."""

    def __init__(self, out, bases=2):
        super().__init__()
        convs = {
            name: dglnn.GraphConv(HIDDEN, out, norm="right", weight=False, bias=False)
            for name in NAMES
        }
        self.conv = dglnn.HeteroGraphConv(convs)
        self.basis = dglnn.WeightBasis((HIDDEN, out), bases, len(NAMES))
        self.loop, self.bias = nn.Parameter(torch.rand(HIDDEN, out)), nn.Parameter(torch.rand(out))

    def forward(self, g, inputs):
        weight = self.basis()
        given = {name: {"weight": weight[number]} for number, name in enumerate(NAMES)}
        hs = self.conv(g, inputs, mod_kwargs=given)
        return {
            name: F.relu(h + torch.matmul(inputs[name], self.loop) + self.bias)
            for name, h in hs.items()
        }


class EntityClassify(nn.Module):
    """Two such layers, after a projection of each type."""

    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleDict({name: nn.Linear(n, HIDDEN) for name, n in NODES.items()})
        self.layers = nn.ModuleList([RelGraphConv(HIDDEN), RelGraphConv(OUT)])

    def forward(self, g, h):
        h = {name: self.embed[name](x) for name, x in h.items()}
        for layer in self.layers:
            h = layer(g, h)
        return h


class HeteroRGCN(nn.Module):
    """multi_update_all with a Linear of each relation."""

    def __init__(self):
        super().__init__()
        self.weight = nn.ModuleDict(
            {name: nn.Linear(NODES[source], OUT) for source, name, _ in TRIPLES}
        )

    def forward(self, G, features):
        messages = {}
        for source, name, _ in G.canonical_etypes:
            G.nodes[source].data[f"Wh_{name}"] = self.weight[name](features[source])
            messages[name] = (fn.copy_u(f"Wh_{name}", "m"), fn.mean("m", "h"))
        G.multi_update_all(messages, "sum")
        return {name: F.leaky_relu(G.nodes[name].data["h"]) for name in G.ntypes}


class FiLM(nn.Module):
    """Messages scaled and shifted by the target, relation by relation."""

    def __init__(self):
        super().__init__()
        self.W = nn.ModuleDict({n: nn.Linear(NODES[s], OUT, bias=False) for s, n, _ in TRIPLES})
        self.film = nn.ModuleDict(
            {n: nn.Linear(NODES[t], 2 * OUT, bias=False) for _, n, t in TRIPLES}
        )

    def forward(self, g, features):
        messages = {}
        for source, name, target in g.canonical_etypes:
            g.nodes[source].data[f"h_{name}"] = self.W[name](features[source])
            gamma, beta = torch.chunk(self.film[name](features[target]), 2, dim=-1)
            sub = g[source, name, target]
            sub.update_all(fn.copy_u(f"h_{name}", "m"), fn.mean("m", "s"))
            messages[target] = messages.get(target, 0) + gamma * sub.dstdata["s"] + beta
        return {name: F.relu(rows) for name, rows in messages.items()}


class HeteroGAT(nn.Module):
    """HeteroGraphConv of attention, over sampled blocks."""

    def __init__(self):
        super().__init__()
        self.conv = dglnn.HeteroGraphConv(
            {
                name: dglnn.GATConv((NODES[source], NODES[target]), OUT, 2)
                for source, name, target in TRIPLES
            }
        )

    def forward(self, blocks, x):
        return {name: h.flatten(1) for name, h in self.conv(blocks[0], x).items()}


class Entity(nn.Module):
    """RelGraphConv over edges whose relations are numbers."""

    def __init__(self):
        super().__init__()
        self.conv = dglnn.RelGraphConv(NODES["user"], OUT, 1, regularizer="basis", num_bases=1)

    def forward(self, g, h):
        return self.conv(g, h, g.edata[dgl.ETYPE], norm=g.edata["norm"])


EXAMPLES = [
    example("examples/pytorch/GNN-FiLM/main.py", FiLM, **TYPED),
    example(
        "examples/pytorch/hgt/model.py",
        lambda: code_of("exports/dgl_examples.txt", "hgt").HGT(NODES, GRAPH["edges"]),
        **TYPED,
    ),
    example("examples/pytorch/hgt/model.py HeteroRGCN", HeteroRGCN, **TYPED),
    example("examples/pytorch/rgat/train.py", HeteroGAT, **TYPED),
    example(
        "examples/pytorch/rgcn/entity.py",
        Entity,
        options={"graph": FOLLOWS},
        line="`--graph job.yaml`",
    ),
    example("examples/pytorch/rgcn-hetero/model.py", EntityClassify, **TYPED),
]
