"""Train the example's model: which packages go together, and who maintains them.

This is an ordinary PyTorch Geometric training script; nothing in it knows that Embertide will run
the model. It hides a tenth of the dependencies and of the maintainers, learns to tell the others
from random pairs, shows how well the hidden ones are told apart, and saves the weights.

    python examples/debian-hetero/train.py [--epochs 40]      # two minutes on two cores, needs PyG
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import torch
from model import RELATIONS, Packages, Relation, Tensors
from safetensors.torch import save_file
from torch.nn.functional import normalize

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from debian.links import contrast  # noqa: E402 - not installed

FEATURES = {
    "package": HERE.parent / "debian" / "data" / "features",
    "maintainer": HERE / "data" / "maintainers",
    "section": HERE / "data" / "sections",
}
LEARNED = [RELATIONS[0], RELATIONS[6]]
"""depends and maintained_by: the relations that are to be told from random pairs."""
PAIRS = 2048
"""Edges of each relation in one step."""
Edges = dict[Relation, torch.Tensor]


@dataclass(frozen=True)
class Graph:
    """Node type -> features [N, D]; relation -> [2, E] row numbers."""

    x: Tensors
    edges: Edges


def read_graph(data: Path, features: dict[str, Path]) -> Graph:
    """Read what build.py wrote; every edge type is there both ways round.

    Args:
        features: node type -> folder.
    """
    x, rows = {}, {}
    for name, folder in features.items():
        table = pq.read_table(folder)
        rows[name] = {one: number for number, one in enumerate(table["id"].to_pylist())}
        values = table["x"].combine_chunks().flatten().to_numpy()
        x[name] = torch.from_numpy(values.copy()).view(len(table), -1)
    edges = {}
    # Each relation is followed by its reverse.
    for forth, back in zip(RELATIONS[::2], RELATIONS[1::2], strict=True):
        table = pq.read_table(data / forth[1])
        ends = zip(("source", "destination"), (forth[0], forth[2]), strict=True)
        pairs = [[rows[kind][one] for one in table[name].to_pylist()] for name, kind in ends]
        edges[forth] = torch.tensor(pairs)
        edges[back] = edges[forth].flip(0)
    return Graph(x, edges)


def hide_some(edges: Edges) -> tuple[Edges, Edges]:
    """Return (what is seen, what is hidden): a tenth of the learned relations, both ways round."""
    seen, hidden = dict(edges), {}
    for relation in LEARNED:
        back = RELATIONS[RELATIONS.index(relation) + 1]
        both = edges[relation][:, torch.randperm(edges[relation].shape[1])]
        cut = both.shape[1] // 10
        hidden[relation], seen[relation] = both[:, :cut], both[:, cut:]
        seen[back] = seen[relation].flip(0)
    return seen, hidden


def loss_of(z: Tensors, relation: Relation, edges: torch.Tensor) -> torch.Tensor:
    """Return the loss of some of a relation's edges, looked at from both ends."""
    batch = edges[:, torch.randint(edges.shape[1], (PAIRS,))]
    one, other = normalize(z[relation[0]]), normalize(z[relation[2]])
    return contrast(one, other, batch) + contrast(other, one, batch.flip(0))


def auc(z: Tensors, relation: Relation, hidden: torch.Tensor, seen: torch.Tensor) -> float:
    """Return how often a hidden edge scores above one whose other end is drawn by popularity."""
    one, other = normalize(z[relation[0]])[hidden[0]], normalize(z[relation[2]])
    drawn = seen[1][torch.randint(seen.shape[1], (hidden.shape[1],))]
    right, wrong = (one * other[hidden[1]]).sum(1), (one * other[drawn]).sum(1)
    rank = torch.cat([right, wrong]).argsort().argsort().double()
    count = len(right)
    return float((rank[:count].sum() - count * (count - 1) / 2) / count**2)


def train(graph: Graph, epochs: int) -> Packages:
    """Return the trained model; prints the loss and the held-out AUC on the way."""
    seen, hidden = hide_some(graph.edges)
    model = Packages()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for epoch in range(1, epochs + 1):
        z = model(graph.x, seen)
        loss = torch.stack([loss_of(z, relation, seen[relation]) for relation in LEARNED]).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if epoch % 10 == 0 or epoch == epochs:
            with torch.no_grad():
                z = model(graph.x, seen)
                found = {one[1]: auc(z, one, hidden[one], seen[one]) for one in LEARNED}
            told = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            print(f"epoch {epoch:3d}  loss {loss.item():.3f}  held-out AUC: {told}", flush=True)
    return model


def main() -> None:
    """Train and write weights.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "weights.safetensors")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model = train(read_graph(options.data, FEATURES), options.epochs)
    save_file({name: p.contiguous() for name, p in model.state_dict().items()}, options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
