"""A job of a few nodes, whose files tests can spoil one by one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from embertide.io.storage.opening import open_storage
from embertide.models.synth import write_random_model

NODES, WIDTH, LAYERS = 12, 4, 2


class SmallJob:
    """NODES nodes in a ring with WIDTH features each, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "embeddings"

    @classmethod
    def make(cls, folder: Path) -> SmallJob:
        """A job that works."""
        job = cls(folder)
        ids = np.arange(NODES)
        job.write_edges(ids, np.roll(ids, 1))
        job.write_features(ids, np.random.default_rng(0).normal(size=(NODES, WIDTH)))
        job.write_model(WIDTH)
        job.write_manifest()
        return job

    def copy(self, folder: Path) -> SmallJob:
        """The same files elsewhere."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return SmallJob(folder)

    @property
    def manifest(self) -> str:
        """The manifest's path."""
        return str(self.folder / "job.yaml")

    @property
    def edges(self) -> Path:
        """The one file of edges."""
        return self.folder / "edges" / "part.parquet"

    @property
    def features(self) -> Path:
        """The one file of features."""
        return self.folder / "features" / "part.parquet"

    @property
    def model(self) -> Path:
        """The folder with the model."""
        return self.folder / "model"

    def write_edges(self, source: Any, destination: Any, **columns: Any) -> None:
        """Replace the edges."""
        _write(self.edges, src=source, dst=destination, **columns)

    def write_features(self, ids: Any, values: Any) -> None:
        """Replace the features; ``values`` is [n, D] or a list of vectors of any lengths."""
        vectors = [np.asarray(row, np.float32) for row in values]
        _write(self.features, id=ids, x=pa.array(vectors, pa.list_(pa.float32())))

    def write_model(self, width_in: int, scale: float = 1.0) -> None:
        """Replace the model by one that takes ``width_in`` features."""
        uri = f"file://{self.model}"
        write_random_model(
            open_storage(None),
            uri,
            "gcn",
            layers=LAYERS,
            width_in=width_in,
            hidden=WIDTH,
            out=WIDTH,
        )
        if scale != 1.0:
            from safetensors.numpy import load_file, save_file

            path = self.model / "weights.safetensors"
            save_file({k: v * np.float32(scale) for k, v in load_file(path).items()}, path)

    def write_manifest(self, **changes: Any) -> None:
        """Write the manifest; ``edges_uri=...`` and the like replace single fields.

        Names are paths in ``spec`` with ``__`` between fields; lists are indexed by number.
        """
        spec: dict[str, Any] = {
            "input": {
                "edges": [{"uri": "edges/", "format": "parquet"}],
                "nodes": [
                    {
                        "ids": "dense",
                        "features": {
                            "uri": "features/",
                            "format": "parquet",
                            "idColumn": "id",
                            "vectorColumn": "x",
                        },
                    }
                ],
            },
            "model": {"uri": "model/"},
            "output": {"uri": "embeddings/"},
            "refresh": {"mode": "full"},
        }
        for path, value in changes.items():
            *way, last = path.split("__")
            at: Any = spec
            for name in way:
                at = at[int(name)] if name.isdigit() else at.setdefault(name, {})
            if value is None:
                del at[last]
            elif isinstance(at, list):
                at.append(value)
            else:
                at[last] = value
        manifest = {
            "apiVersion": "embertide.dev/v1alpha1",
            "kind": "EmbeddingJob",
            "metadata": {"name": "small"},
            "spec": spec,
        }
        (self.folder / "job.yaml").write_text(yaml.safe_dump(manifest))

    def write_csv(self, lines: str, **changes: Any) -> Path:
        """Replace the edges by a csv file with these lines."""
        path = self.folder / "edges" / "part.csv"
        self.edges.unlink()
        path.write_text(lines)
        self.write_manifest(input__edges__0__format="csv", **changes)
        return path


def _write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
