"""Measure what the graph adds: hidden dependencies, ranked by features and by embeddings.

A question is a hidden dependency: of all other packages, which one does this package ask for? Three
answers: the most popular packages; popularity and features; popularity and embeddings. Packages
that it is known to ask for are no candidates.

    python examples/debian-archive/evaluate.py --seeds 10       # trains ten models
    python examples/debian-archive/evaluate.py --rows FOLDER    # of a job that ran on what was seen
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from model import Archive
from train import HERE, Graph, Sampled, read_graph, save, train_seed

sys.path.insert(0, str(HERE.parent))

from debian.links import TEMPERATURE, measures, ranks

import embertide

QUESTIONS = 1000
"""Hidden dependencies that are asked for, of a hundred thousand."""
OF_FEATURES = 0.2
"""The temperature at which features do best, of 0.05, 0.1, 0.2 and 0.4."""

Measures = dict[str, dict[str, float]]


def evaluate(graph: Graph, hidden: torch.Tensor, z: torch.Tensor) -> Measures:
    """Return the measures of each way to answer.

    Args:
        hidden: [E], a mask of the pairs that training did not see.
        z: [N, D], embeddings made without the hidden pairs.
    """
    known = torch.cat([graph.pairs, graph.pairs.flip(0)], dim=1)
    asked = graph.pairs[:, hidden]
    draw = np.random.default_rng(0).permutation(asked.shape[1])[:QUESTIONS]
    questions = asked[:, torch.from_numpy(draw)]
    popularity = 1.0 + graph.pairs[1, ~hidden].bincount(minlength=len(z))
    ways = {
        "popularity": (torch.zeros(len(z), 1), TEMPERATURE),
        "features": (graph.x, OF_FEATURES),
        "embeddings": (z, TEMPERATURE),
    }
    return {
        way: measures(ranks(rows, popularity, questions, known, temperature))
        for way, (rows, temperature) in ways.items()
    }


def of_model(graph: Graph, model: Archive, hidden: torch.Tensor) -> Measures:
    """Measure the embeddings that the module itself computes of what it has seen."""
    seen = graph.pairs[:, ~hidden]
    with torch.no_grad():
        everything = torch.ones(seen.shape[1], dtype=torch.bool)
        z = model(graph.x, Sampled(seen, len(graph.x)).of(everything))
    return evaluate(graph, hidden, z)


def of_rows(graph: Graph, data: Path, hidden: Path, rows: Path) -> Measures:
    """Measure what a job has published."""
    ids, vectors = embertide.read(rows).to_numpy()
    names = pq.read_table(data / "features", columns=["id"])["id"]
    place = pc.index_in(names, pa.array(ids, names.type)).to_numpy()
    return evaluate(graph, torch.from_numpy(np.load(hidden)), torch.from_numpy(vectors[place]))


def summary(found: list[Measures]) -> dict[str, dict[str, list[float]]]:
    """Return [mean, standard deviation] of each measure over the seeds."""
    return {
        way: {
            name: [float(np.mean(values)), float(np.std(values, ddof=1))]
            for name in found[0][way]
            if (values := [one[way][name] for one in found])
        }
        for way in found[0]
    }


def main() -> None:
    """Print the measures as JSON; those of several seeds with their mean and deviation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--seeds", type=int, default=0, help="train so many models")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=HERE / "trained", help="where they go")
    parser.add_argument("--rows", type=Path, help="the output of a job")
    parser.add_argument("--hidden", type=Path, default=HERE / "trained" / "seed-0" / "hidden.npy")
    options = parser.parse_args()

    graph = read_graph(options.data)
    if options.rows is not None:
        print(json.dumps(of_rows(graph, options.data, options.hidden, options.rows)))
        return
    found = []
    for seed in range(options.seeds):
        model, hidden = train_seed(graph, seed, options.epochs)
        save(model, hidden, options.data, options.out / f"seed-{seed}")
        found.append(of_model(graph, model, hidden))
        print(json.dumps({"seed": seed, **found[-1]}), flush=True)
    if len(found) > 1:
        print(json.dumps(summary(found)))


if __name__ == "__main__":
    main()
