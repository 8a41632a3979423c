"""FastRP as a script: scipy's sparse products with dense rows, numpy's random numbers.

The published steps with Neo4j's defaults: 128 columns of very sparse signs, three times the mean
over in-neighbours in float32, rows of the second and third by their lengths, and added.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

COLUMNS, WEIGHTS = 128, (0.0, 1.0, 1.0)


def main() -> None:
    """Read edges, compute, write one npy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="made by benchmarks.dataset")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    nodes = json.loads((given.data / "dataset.json").read_text())["nodes"]
    edges = pq.read_table(given.data / "edges")
    source, destination = (edges[name].to_numpy().astype(np.int32) for name in ("src", "dst"))
    degree = np.bincount(destination, minlength=nodes).astype(np.float32)
    weights = 1 / degree[destination]
    walk = sp.csr_array((weights, (destination, source)), shape=(nodes, nodes))
    del source, destination, weights, edges
    sides = np.random.default_rng(0).integers(0, 6, (nodes, COLUMNS), np.int8)
    size = np.float32(np.sqrt(3 / COLUMNS))
    rows = np.where(sides == 0, size, np.where(sides == 1, -size, np.float32(0)))
    del sides
    total = np.zeros_like(rows)
    for weight in WEIGHTS:
        rows = walk @ rows
        if weight:
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            total += weight * rows / np.maximum(lengths, 1e-12)
    np.save(given.out, total)


if __name__ == "__main__":
    main()
