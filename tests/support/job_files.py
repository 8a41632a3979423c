"""Jobs on files: writes a graph in some formats, with some kind of ids, and its manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch

from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import iter_embeddings
from embertide.models.synth import write_random_model
from embertide.spec.manifest import EmbeddingJob, load_manifest
from tests.support.world import Graph

WIDTH, HIDDEN, OUT, HEADS = 9, 12, 6, 3
EDGE_COLUMNS = ["price", "age"]
"""Features of edges, where a graph has some."""


@dataclass(frozen=True)
class JobFiles:
    """What a job is made of.

    Attributes:
        names: [N] the id of each node in the files.
    """

    folder: Path
    graph: Graph
    names: list[Any]
    features: torch.Tensor
    job: EmbeddingJob

    def published(self) -> torch.Tensor:
        """[N, D'] of the current version, in the order of ``names``; every id exactly once."""
        found: dict[Any, np.ndarray] = {}
        for ids, values in iter_embeddings(open_storage(None), self.job.spec.output.uri):
            for name, row in zip(ids.tolist(), values, strict=True):
                assert name not in found
                found[name] = row
        assert set(found) == set(self.names)
        return torch.from_numpy(np.stack([found[name] for name in self.names]))


def node_names(kind: str, nodes: int) -> list[Any]:
    """Ids that are neither sorted nor small; strings that are prefixes of others, not ASCII."""
    if kind == "dense":
        return list(range(nodes))
    if kind == "int64":
        return [(k * 7919 - 300_000) * (-1) ** k * 10**12 + k for k in range(nodes)]
    return ["" if k == 0 else "ñ" * (k % 3) + "node-" * (k % 4) + str(k) for k in range(nodes)]


def write_job(
    folder: Path,
    graph: Graph,
    features: torch.Tensor,
    *,
    ids: str = "dense",
    edges: str = "parquet",
    nodes: str = "parquet",
    conv: str = "gcn",
    output: str = "parquet",
    inference: dict[str, Any] | None = None,
    **edge_options: Any,
) -> JobFiles:
    """Write all inputs, in several objects each, and read the manifest back."""
    names = node_names(ids, graph.nodes)
    edge_input = _write_edges(folder / "edges", graph, names, edges) | edge_options
    node_input = _write_features(folder / "x", names, features, nodes, ids)
    write_random_model(
        open_storage(None), f"file://{folder}/model", conv, layers=2, width_in=WIDTH, hidden=HIDDEN,
        out=OUT, heads=HEADS, edge_features=len(EDGE_COLUMNS) if conv == "edge_gat" else 0, seed=5,
    )  # fmt: skip
    manifest = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "test"},
        "spec": {
            "input": {"edges": [edge_input], "nodes": [node_input]},
            "model": {"uri": f"file://{folder}/model"},
            "inference": {"groupBytes": 4096, **(inference or {})},
            "output": {"uri": f"file://{folder}/out", "format": output},
            "refresh": {"mode": "full"},
        },
    }
    return JobFiles(folder, graph, names, features, load_manifest(json.dumps(manifest, indent=1)))


def _write_edges(folder: Path, graph: Graph, names: list[Any], kind: str) -> dict[str, Any]:
    folder.mkdir(parents=True)
    half = len(graph.src) // 2
    for number, part in enumerate((slice(0, half), slice(half, None))):
        path = folder / f"{number}.{kind}"
        src, dst = ([names[i] for i in end[part]] for end in (graph.src, graph.dst))
        columns = {"src": src, "dst": dst}
        if graph.weight is not None:
            columns["w"] = graph.weight[part]
        if graph.features is not None:
            columns |= zip(EDGE_COLUMNS, graph.features[part].T, strict=True)
        if kind == "npy":
            np.save(path, np.array([src, dst]).T)
        elif kind == "csv":
            pa.csv.write_csv(pa.table(columns), path)
        else:
            pa.parquet.write_table(pa.table(columns), path, row_group_size=100)
    given: dict[str, Any] = {"uri": f"file://{folder}", "format": kind}
    if kind == "npy":
        given["columns"] = {"source": 0, "destination": 1}
    elif graph.weight is not None:
        given["columns"] = {"weight": "w"}
    if graph.features is not None:
        given["features"] = {"columns": EDGE_COLUMNS}
    return given


def _write_features(
    folder: Path, names: list[Any], features: torch.Tensor, kind: str, ids: str
) -> dict[str, Any]:
    """Rows in random order, but for npy of dense ids, whose rows are the ids."""
    (folder / "ids").mkdir(parents=True)
    (folder / "values").mkdir()
    by_number = kind == "npy" and ids == "dense"
    order = np.random.default_rng(2).permutation(len(names))
    order = np.arange(len(names)) if by_number else order
    for number, part in enumerate(np.array_split(order, 3)):
        values, own = features.numpy()[part], [names[i] for i in part]
        if kind == "npy":
            np.save(folder / "values" / f"{number}.npy", values)
            np.save(folder / "ids" / f"{number}.npy", np.array(own))
        else:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            table = pa.table({"id": own, "vector": vectors})
            pa.parquet.write_table(table, folder / "values" / f"{number}.parquet")
    given: dict[str, Any] = {"uri": f"file://{folder}/values", "format": kind}
    if kind == "parquet":
        given["vectorColumn"] = "vector"
    elif not by_number:
        given["idsUri"] = f"file://{folder}/ids"
    return {"ids": ids, "features": given}
