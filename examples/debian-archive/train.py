"""Train the example's model: which packages ask for which.

This is an ordinary PyTorch Geometric training script; nothing in it knows that Embertide will run
the model. A tenth of the dependencies is hidden from it. In each epoch it sees a third of the
others as a graph, and learns to pick the right ends of some of the rest.

    python examples/debian-archive/train.py [--epochs 8] [--seed 0]

Writes the weights, what was seen (an edge list, as the job reads it) and what was hidden.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from model import Archive
from safetensors.torch import save_file
from torch.nn.functional import normalize

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from debian.links import contrast  # noqa: E402 - not installed

HIDDEN = 0.1
"""What is hidden of the dependencies."""
SEEN = 1 / 3
"""What an epoch sees of the others as a graph."""
PAIRS = 4096
"""Edges in one step, looked at from both ends."""


@dataclass(frozen=True)
class Graph:
    """Features [N, D], pairs [2, E] of row numbers, and which of them may be hidden [E]."""

    x: torch.Tensor
    pairs: torch.Tensor
    asked: torch.Tensor


def read_graph(data: Path) -> Graph:
    """Read what build.py wrote. What a source becomes is no question: its text is theirs."""
    features = pq.read_table(data / "features")
    x = features["x"].combine_chunks().flatten().to_numpy().reshape(len(features), -1)
    edges = pq.read_table(data / "edges")
    ends = [pc.index_in(edges[end], features["id"]) for end in ("source", "destination")]
    return Graph(
        torch.from_numpy(x.copy()),
        torch.from_numpy(np.stack([end.to_numpy().astype(np.int64) for end in ends])),
        torch.from_numpy(pc.not_equal(edges["kind"], "Binary").to_numpy()),
    )


class Sampled:
    """A graph of pairs, both ways round, of which each epoch takes some."""

    def __init__(self, pairs: torch.Tensor, nodes: int) -> None:
        both = torch.cat([pairs, pairs.flip(0)], dim=1)
        order = both[0].argsort()
        self.nodes, self.row, self.column = nodes, both[0][order], both[1][order]
        self.pair = order % pairs.shape[1]

    def of(self, kept: torch.Tensor) -> torch.Tensor:
        """Return the pairs of a mask [E] as an adjacency matrix."""
        chosen = kept[self.pair]
        starts = torch.zeros(self.nodes + 1, dtype=torch.long)
        starts[1:] = self.row[chosen].bincount(minlength=self.nodes).cumsum(0)
        column = self.column[chosen]
        return torch.sparse_csr_tensor(
            starts, column, torch.ones(len(column)), (self.nodes, self.nodes)
        )


def hide(graph: Graph) -> torch.Tensor:
    """Return a mask [E] of the pairs that training does not see."""
    return (torch.rand(graph.pairs.shape[1]) < HIDDEN) & graph.asked


def train(x: torch.Tensor, pairs: torch.Tensor, epochs: int) -> Archive:
    """Return the trained model; prints the loss on the way."""
    model, graph, started = Archive(x.shape[1]), Sampled(pairs, len(x)), time.monotonic()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for epoch in range(1, epochs + 1):
        kept = torch.rand(pairs.shape[1]) < SEEN
        z = normalize(model(x, graph.of(kept)))
        others = (~kept).nonzero()[:, 0]
        batch = pairs[:, others[torch.randint(len(others), (min(PAIRS, len(others)),))]]
        loss = contrast(z, z, batch) + contrast(z, z, batch.flip(0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if epoch % 10 == 0 or epoch == epochs:
            seconds = time.monotonic() - started
            print(f"epoch {epoch:3d}  loss {loss.item():.3f}  {seconds:.0f} s", flush=True)
    return model


def train_seed(graph: Graph, seed: int, epochs: int) -> tuple[Archive, torch.Tensor]:
    """Return a model and the mask [E] of the pairs that were hidden from it."""
    torch.manual_seed(seed)
    hidden = hide(graph)
    return train(graph.x, graph.pairs[:, ~hidden], epochs), hidden


def save(model: Archive, hidden: torch.Tensor, data: Path, out: Path) -> None:
    """Write weights.safetensors, seen/edges.parquet and hidden.npy."""
    (out / "seen").mkdir(parents=True, exist_ok=True)
    save_file(dict(model.state_dict()), out / "weights.safetensors")
    edges = pq.read_table(data / "edges")
    pq.write_table(edges.filter(pa.array((~hidden).numpy())), out / "seen" / "edges.parquet")
    np.save(out / "hidden.npy", hidden.numpy())
    print(f"wrote {out}: {int(hidden.sum())} of {len(hidden)} edges were hidden", flush=True)


def main() -> None:
    """Train and save a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "trained")
    options = parser.parse_args()

    graph = read_graph(options.data)
    model, hidden = train_seed(graph, options.seed, options.epochs)
    save(model, hidden, options.data, options.out)


if __name__ == "__main__":
    main()
