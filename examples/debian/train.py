"""Train the example's model: a two-layer GraphSAGE that predicts which packages go together.

This is an ordinary DGL training script; nothing in it knows that Embertide will run the model.
It hides a tenth of the dependencies, learns to tell the others from random pairs, shows how well
the hidden ones are told apart with and without the graph, and saves the weights under the names
DGL gave them.

    python examples/debian/train.py [--epochs 80]       # two minutes on two cores, needs dgl
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy, normalize, relu

from embertide.models.dgl_interop import DglUnavailable, load_dgl

HERE = Path(__file__).resolve().parent

HIDDEN = 128
WIDTH = 64
PAIRS = 60_000
"""Edges in one step."""
NEGATIVES = 10
"""Other ends drawn for each of them."""
TEMPERATURE = 0.1
"""What cosines are divided by before the softmax over one right and NEGATIVES wrong ends."""

try:
    dgl: Any = load_dgl()
except DglUnavailable as error:
    sys.exit(str(error))


@dataclass(frozen=True)
class Packages:
    """The snapshot: features [N, D], and edges as [E] row numbers with weights."""

    x: torch.Tensor
    source: torch.Tensor
    destination: torch.Tensor
    weight: torch.Tensor


class Sage(torch.nn.Module):
    """Two GraphSAGE layers over the weighted graph, ReLU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        convs = [
            dgl.nn.SAGEConv(width, HIDDEN, "mean"),
            dgl.nn.SAGEConv(HIDDEN, WIDTH, "mean"),
        ]
        self.layers = torch.nn.ModuleList(convs)

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the embeddings [N, WIDTH]."""
        first, second = self.layers
        hidden = relu(first(graph, x, edge_weight=graph.edata["weight"]))
        embeddings: torch.Tensor = second(graph, hidden, edge_weight=graph.edata["weight"])
        return embeddings


def read_packages(data: Path) -> Packages:
    """Read what build.py wrote."""
    features = pq.read_table(data / "features")
    row = {name: number for number, name in enumerate(features["id"].to_pylist())}
    x = features["x"].combine_chunks().flatten().to_numpy().reshape(len(row), -1)
    edges = pq.read_table(data / "edges")
    return Packages(
        x=torch.from_numpy(x.copy()),
        source=torch.tensor([row[name] for name in edges["source"].to_pylist()]),
        destination=torch.tensor([row[name] for name in edges["destination"].to_pylist()]),
        weight=torch.from_numpy(edges["weight"].to_numpy().astype(np.float32)),
    )


def graph_of(packages: Packages, chosen: torch.Tensor) -> Any:
    """Return the chosen edges as a DGL graph with both directions, as the job's manifest says."""
    source, destination = packages.source[chosen], packages.destination[chosen]
    both = torch.cat([source, destination]), torch.cat([destination, source])
    graph = dgl.graph(both, num_nodes=len(packages.x))
    graph.edata["weight"] = packages.weight[chosen].repeat(2)
    return graph


def contrast(
    z: torch.Tensor, one: torch.Tensor, other: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Return the loss of picking ``other`` for ``one`` among NEGATIVES drawn from ``ends``.

    Drawing from the ends of edges shows a package as a wrong answer as often as it is a right
    one, so being popular does not help.
    """
    wrong = ends[torch.randint(len(ends), (len(one), NEGATIVES))]
    right = (z[one] * z[other]).sum(1, keepdim=True)
    scores = torch.cat([right, torch.einsum("nd,nkd->nk", z[one], z[wrong])], dim=1)
    return cross_entropy(scores / TEMPERATURE, torch.zeros(len(one), dtype=torch.long))


def auc(z: torch.Tensor, packages: Packages, hidden: torch.Tensor, ends: torch.Tensor) -> float:
    """Return how often a hidden edge scores above a pair whose other end is drawn by popularity."""
    z = normalize(z)
    source = packages.source[hidden]
    drawn = ends[torch.randint(len(ends), (len(hidden),))]
    right = (z[source] * z[packages.destination[hidden]]).sum(1)
    wrong = (z[source] * z[drawn]).sum(1)
    rank = torch.cat([right, wrong]).argsort().argsort().double()
    count = len(hidden)
    return float((rank[:count].sum() - count * (count - 1) / 2) / count**2)


def train(packages: Packages, epochs: int) -> Sage:
    """Return the trained model; prints the loss and the held-out AUC on the way."""
    order = torch.randperm(len(packages.source))
    hidden, seen = order[: len(order) // 10], order[len(order) // 10 :]
    graph = graph_of(packages, seen)
    ends = torch.cat([packages.source[seen], packages.destination[seen]])
    print(f"held-out AUC of the raw features {auc(packages.x, packages, hidden, ends):.3f}")

    model = Sage(packages.x.shape[1])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for epoch in range(1, epochs + 1):
        z = normalize(model(graph, packages.x))
        batch = seen[torch.randint(len(seen), (PAIRS,))]
        source, destination = packages.source[batch], packages.destination[batch]
        loss = contrast(z, source, destination, ends) + contrast(z, destination, source, ends)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if epoch % 10 == 0:
            with torch.no_grad():
                found = auc(model(graph, packages.x), packages, hidden, ends)
            print(f"epoch {epoch:3d}  loss {loss.item():.3f}  held-out AUC {found:.3f}", flush=True)
    return model


def main() -> None:
    """Train and write model/model.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "model" / "model.safetensors")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model = train(read_packages(options.data), options.epochs)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: p.contiguous() for name, p in model.state_dict().items()}, options.out)
    print(f"wrote {options.out}: {', '.join(model.state_dict())}")


if __name__ == "__main__":
    main()
