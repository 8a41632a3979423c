"""The example's real graph, night after night: broken in one way, or drifting as data do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from safetensors.numpy import load_file, save_file

from embertide.facts.telemetry.report import RunReport
from embertide.launch.local import run_job
from embertide.spec.manifest import load_manifest
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "debian"
TYPED = ROOT / "examples" / "debian-hetero"
Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Night:
    """What a job reads.

    Attributes:
        names: [N] of the packages.
        x: [N, D] their features.
        edges: columns source, destination, kind and weight.
        weights: of the model.
    """

    names: Any
    x: npt.NDArray[np.float32]
    edges: Any
    weights: Weights

    @classmethod
    def of_example(cls) -> Night:
        """As the repository has it."""
        features = pq.read_table(EXAMPLE / "data" / "features")
        names = features["id"].combine_chunks()
        x = features["x"].combine_chunks().flatten().to_numpy().reshape(len(names), -1)
        edges = pq.read_table(EXAMPLE / "data" / "edges")
        return cls(names, x.copy(), edges, load_file(EXAMPLE / "model" / "model.safetensors"))

    def run(self, folder: Path, output: Path, **spec: Any) -> RunReport:
        """Write it, and publish a version of it under ``output``."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("edges", "features", "model"):
            (folder / name).mkdir(parents=True)
        pq.write_table(self.edges, folder / "edges" / "part.parquet")
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(self.x.ravel()), self.x.shape[1])
        pq.write_table(
            pa.table({"id": self.names, "x": vectors}), folder / "features" / "part.parquet"
        )
        shutil.copy(EXAMPLE / "model" / "model.yaml", folder / "model")
        save_file(self.weights, folder / "model" / "model.safetensors")
        return run_job(load_manifest(json.dumps(_manifest(folder, output, spec))), threads=2)


def _manifest(folder: Path, output: Path, spec: dict[str, Any]) -> dict[str, Any]:
    columns = {"source": "source", "destination": "destination", "weight": "weight"}
    edges = {"uri": f"file://{folder}/edges", "format": "parquet", "columns": columns}
    features = {"uri": f"file://{folder}/features", "idColumn": "id", "vectorColumn": "x"}
    return {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "debian"},
        "spec": {
            "input": {
                "edges": [{**edges, "directed": False}],
                "nodes": [{"ids": "string", "features": {**features, "format": "parquet"}}],
            },
            "model": {"uri": f"file://{folder}/model"},
            "output": {"uri": f"file://{output}", "gate": {}, "keepVersions": 2},
            **spec,
        },
    }


def run_typed(output: Path, empty: str = "", **spec: Any) -> RunReport:
    """Publish a version of the example with several node types.

    Args:
        empty: the edge type whose objects did not arrive.
    """
    job = yaml.safe_load((TYPED / "job.yaml").read_text())
    for given in (*job["spec"]["input"]["edges"], *_features(job)):
        given["uri"] = f"file://{(TYPED / given['uri']).resolve()}"
    for edges in job["spec"]["input"]["edges"]:
        if edges["name"] == empty:
            edges |= {"uri": f"file://{output}-nothing", "optional": True}
    job["spec"]["model"]["uri"] = f"file://{TYPED}/model"
    job["spec"] |= {"output": {"uri": f"file://{output}", "gate": {}}, "workers": {}, **spec}
    return run_job(load_manifest(json.dumps(job)), threads=2)


def _features(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [node["features"] for node in job["spec"]["input"]["nodes"]]


def _generator() -> np.random.Generator:
    return np.random.default_rng(0)


def _half_the_edges(night: Night) -> Night:
    kept = np.sort(_generator().permutation(len(night.edges))[: len(night.edges) // 2])
    return replace(night, edges=night.edges.take(pa.array(kept)))


def _shuffled_ids(night: Night) -> Night:
    return replace(night, names=night.names.take(pa.array(_generator().permutation(len(night.x)))))


def _zeroed_features(night: Night) -> Night:
    return replace(night, x=np.zeros_like(night.x))


def _wrong_model(night: Night) -> Night:
    """As many layers and columns, but of something else."""
    weights = {
        name: (_generator().normal(size=values.shape) * values.std()).astype(np.float32)
        for name, values in night.weights.items()
    }
    return replace(night, weights=weights)


def _stale_scaler(night: Night) -> Night:
    """Means and deviations of columns from before the features' distribution changed."""
    generator, deviation = _generator(), night.x.std(axis=0)
    mean = generator.normal(size=night.x.shape[1]) * 0.5 * deviation
    scale = generator.lognormal(0, 0.5, night.x.shape[1])
    return replace(night, x=((night.x - mean) / scale).astype(np.float32))


def _duplicated_partition(night: Night) -> Night:
    """One of four files was written twice."""
    quarter = night.edges.slice(0, len(night.edges) // 4)
    return replace(night, edges=pa.concat_tables([night.edges, quarter]))


def _swapped_columns(night: Night) -> Night:
    """Columns x0, x1, ... that something has sorted as text: x0, x1, x10, x11, ..."""
    order = sorted(range(night.x.shape[1]), key=str)
    return replace(night, x=np.ascontiguousarray(night.x[:, order]))


def _nan_in_one_column(night: Night) -> Night:
    x = night.x.copy()
    x[::7, 3] = np.nan
    return replace(night, x=x)


BROKEN: dict[str, Callable[[Night], Night]] = {
    "half the edges": _half_the_edges,
    "shuffled ids": _shuffled_ids,
    "zeroed features": _zeroed_features,
    "wrong model": _wrong_model,
    "stale scaler": _stale_scaler,
    "duplicated partition": _duplicated_partition,
    "swapped columns": _swapped_columns,
    "NaN in one column": _nan_in_one_column,
}
"""Eight of the ten; another seed needs a job that samples, an empty relation one with several."""


def drifted(night: Night, day: int, share: float = 0.01) -> Night:
    """The next day: of the edges so many are gone, and as many are new, between like ends."""
    generator = np.random.default_rng(day)
    count = len(night.edges)
    changed = round(share * count)
    kept = np.sort(generator.permutation(count)[changed:])
    fresh = {
        name: night.edges[name].take(pa.array(generator.integers(0, count, changed)))
        for name in night.edges.column_names
    }
    return replace(
        night, edges=pa.concat_tables([night.edges.take(pa.array(kept)), pa.table(fresh)])
    )
