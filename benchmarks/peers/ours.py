"""Embertide's job for the peers' work: the same files in, embeddings published as npy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.typed_dataset import RELATIONS, SHARES


def write_job(data: Path, conv: str, features: str, output: Path) -> Path:
    """A manifest beside its output; returns it."""
    edges = {"uri": str(data / "edges"), "format": "parquet", "selfLoops": "addRemaining"}
    nodes = {"ids": "dense", "features": _features(data / "features", features)}
    return _write(str(data / "models" / conv), [edges], [nodes], output)


def write_typed_job(data: Path, conv: str, features: str, output: Path) -> Path:
    """As :func:`write_job`, for a data set of several node types."""
    edges = [
        {
            "name": name,
            "sourceType": source,
            "destinationType": destination,
            "uri": str(data / "edges" / name),
            "format": "parquet",
        }
        for source, name, destination in RELATIONS
    ]
    nodes = [
        {"name": name, "ids": "dense", "features": _features(data / "features" / name, features)}
        for name in SHARES
    ]
    return _write(str(data / "models" / conv), edges, nodes, output)


def write_ids_job(data: Path, ids: str, form: str, output: Path) -> Path:
    """As :func:`write_job`, for a graph of ``graph_dataset`` with ids of a kind."""
    kind = ids if ids in ("dense", "int64") else "string"
    edges = {"uri": str(data / "edges"), "format": form}
    features = {"uri": str(data / "features"), "format": "parquet", "idColumn": "id"}
    nodes = {"ids": kind, "features": {**features, "columns": ["x"]}}
    return _write(str(data / "model"), [edges], [nodes], output)


def write_fastrp_job(data: Path, output: Path) -> Path:
    """As :func:`write_job`, for the built-in FastRP, which reads edges alone."""
    nodes = json.loads((data / "dataset.json").read_text())["nodes"]
    edges = {"uri": str(data / "edges"), "format": "parquet"}
    return _write({"builtin": "fastrp"}, [edges], [{"count": nodes}], output)


def write_store_job(root: str, conv: str, storage: dict[str, str], output: Path) -> Path:
    """As :func:`write_job` with npy features, for a data set below a URI, where it publishes too.

    Args:
        storage: the manifest's ``spec.storage``.
    """
    edges = {"uri": f"{root}/edges", "format": "parquet", "selfLoops": "addRemaining"}
    features = {"uri": f"{root}/features/x", "format": "npy", "idsUri": f"{root}/features/ids"}
    nodes = {"ids": "dense", "features": features}
    model = f"{root}/models/{conv}"
    return _write(model, [edges], [nodes], output, f"{root}/embeddings", storage=storage)


def _features(folder: Path, features: str) -> dict[str, str]:
    if features == "npy":
        return {"uri": str(folder / "x"), "format": "npy", "idsUri": str(folder / "ids")}
    parquet = {"uri": str(folder / "parquet"), "format": "parquet"}
    return parquet | {"idColumn": "id", "vectorColumn": "x"}


def _write(
    model: str | dict[str, Any],
    edges: list[Any],
    nodes: list[Any],
    output: Path,
    published: str = "",
    **more: Any,
) -> Path:
    spec = {
        "input": {"edges": edges, "nodes": nodes},
        "model": {"uri": model} if isinstance(model, str) else model,
        "output": {"uri": published or str(output / "embeddings"), "format": "npy"},
        **more,
    }
    head = {"apiVersion": "embertide.dev/v1alpha1", "kind": "EmbeddingJob"}
    output.mkdir(parents=True, exist_ok=True)
    job = output / "job.yaml"
    job.write_text(yaml.safe_dump({**head, "metadata": {"name": "benchmark"}, "spec": spec}))
    return job


def command(job: Path, grid: str, threads: int = 0) -> list[str]:
    """The command line; its last line of output is the report."""
    words = [sys.executable, "-m", "embertide", "run", str(job), "--force", "--grid", grid]
    words += ["--threads", str(threads)] if threads else []
    return [*words, "--json", "--quiet"]


def report(stdout: str) -> dict[str, Any]:
    """The report of a command that succeeded."""
    found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return found
