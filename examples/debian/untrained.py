"""Models that need no training beside the trained one, on the dependencies hidden from all.

The tenth that train.py hides is taken out of the edges, each model's job is run, and hidden
dependencies are looked for by cosine: AUC as train.py has it, and the share of hidden ones among
the ten packages nearest to their source, of those it is not known to need.

    python examples/debian/untrained.py     # two minutes on two cores, needs dgl as train.py does
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import torch
import yaml
from torch.nn.functional import normalize
from train import HERE, Packages, auc, read_packages

import embertide

K = 10
MODELS: dict[str, tuple[dict[str, Any], bool]] = {
    "FastRP of the edges": ({"builtin": "fastrp"}, False),
    "FastRP of edges and features": ({"builtin": "fastrp"}, True),
    "APPNP of the features": ({"builtin": "appnp"}, True),
    "GraphSAGE, trained": ({"uri": str(HERE / "model")}, True),
}
"""Name -> the manifest's model, and whether it reads features."""


def recall(z: torch.Tensor, packages: Packages, hidden: torch.Tensor, seen: torch.Tensor) -> float:
    """The share of hidden dependencies among the K nearest to their source, but known ones."""
    z, found = normalize(z), 0
    ends = packages.source[seen].numpy(), packages.destination[seen].numpy()
    known = sp.csr_array((np.ones(len(seen)), ends), shape=(len(z), len(z)))
    known = (known + known.T).tocsr()
    for some in hidden.split(1024):
        source, wanted = packages.source[some], packages.destination[some]
        scores = z[source] @ z.T
        scores[torch.from_numpy(known[source.numpy()].toarray()) > 0] = -2
        scores[torch.arange(len(some)), source] = -2
        found += int((scores.topk(K).indices == wanted[:, None]).any(1).sum())
    return found / len(hidden)


def embed(folder: Path, names: list[str], model: dict[str, Any], *, featured: bool) -> torch.Tensor:
    """[N, D] the published rows, in the order of the names."""
    edges = {"uri": str(folder / "edges.parquet"), "format": "parquet", "directed": False}
    edges["columns"] = {"source": "source", "destination": "destination", "weight": "weight"}
    data = HERE / "data" / "features"
    node: dict[str, Any] = {"ids": "string"}
    if featured:
        node["features"] = {"uri": str(data), "idColumn": "id", "vectorColumn": "x"}
    else:
        node["table"] = {"uri": str(data), "idColumn": "id"}
    job = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "untrained"},
        "spec": {
            "input": {"edges": [edges], "nodes": [node]},
            "model": model,
            "output": {"uri": str(folder / "out")},
            "refresh": {"mode": "full"},
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    embertide.run(folder / "job.yaml")
    ids, vectors = embertide.read(folder / "out").to_numpy()
    row = {name: at for at, name in enumerate(ids)}
    return torch.from_numpy(vectors[[row[name] for name in names]])


def main() -> None:
    """Print a row of each model."""
    packages = read_packages(HERE / "data")
    names = pq.read_table(HERE / "data" / "features", columns=["id"])["id"].to_pylist()
    torch.manual_seed(0)
    order = torch.randperm(len(packages.source))
    hidden, seen = order[: len(order) // 10], order[len(order) // 10 :]
    ends = torch.cat([packages.source[seen], packages.destination[seen]])
    print("| | AUC | recall@10 |\n|---|---|---|")

    def show(name: str, z: torch.Tensor) -> None:
        found = recall(z, packages, hidden, seen)
        print(f"| {name} | {auc(z, packages, hidden, ends):.3f} | {found:.3f} |", flush=True)

    show("features alone", packages.x)
    with tempfile.TemporaryDirectory() as name:
        edges = pq.read_table(HERE / "data" / "edges").take(pa.array(seen.numpy()))
        pq.write_table(edges, Path(name) / "edges.parquet")
        for title, (model, featured) in MODELS.items():
            show(title, embed(Path(name), names, model, featured=featured))


if __name__ == "__main__":
    main()
