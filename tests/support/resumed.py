"""A job whose runs are killed while they keep layers, and what they leave and publish."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest, list_versions
from embertide.io.versions.layers.catalog import list_layers
from embertide.io.versions.layers.seals import Seal, from_bytes
from embertide.io.versions.layers.sweeping import keys, objects_of, remove
from embertide.io.versions.reading import iter_embeddings
from embertide.spec.workers import StorageSettings
from tests.support.commands import Done, Running
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS
from tests.support.synthetic import make_synthetic

LAYERS, NODES = 3, 1 << 15


class Job:
    """A job whose layers take long enough for a run to be met in each.

    Args:
        grids: of those runs whose bits are compared.
        output: its URI; default: a folder.
        settings: of the store that the output is in.
        scale: 2^scale nodes.
    """

    def __init__(
        self,
        folder: Path,
        grids: tuple[str, ...],
        output: str = "",
        settings: StorageSettings | None = None,
        scale: int = 15,
    ) -> None:
        self._folder, self.path = folder, folder / "job"
        self.storage = open_storage(settings)
        make_synthetic(self.path, "--scale", str(scale))
        self.uri = output or (self.path / "embeddings").as_uri()
        manifest = yaml.safe_load((self.path / "job.yaml").read_text())
        manifest["spec"]["output"]["uri"] = self.uri
        # All bits are compared here.
        manifest["spec"]["inference"] = {"checkedRows": 0}
        if settings is not None:
            manifest["spec"]["storage"] = settings.model_dump(
                mode="json", by_alias=True, exclude_defaults=True
            )
        (self.path / "job.yaml").write_text(yaml.safe_dump(manifest))
        self.bits = {grid: self._rows_on(grid) for grid in grids}

    def _rows_on(self, grid: str) -> bytes:
        """What a run on a grid that keeps nothing publishes."""
        assert self.run(grid, "--no-resume").done(WAIT_SECONDS).code == 0
        return self.rows()

    def run(self, grid: str, *words: str) -> Running:
        """A run that is under way."""
        manifest = str(self.path / "job.yaml")
        return Running(self._folder, "run", manifest, "--force", "--grid", grid, "--json", *words)

    def embed(self, *ids: int) -> Done:
        """The end of computing the embeddings of some nodes."""
        words = ("--ids", ",".join(map(str, ids)))
        return Running(self._folder, "embed", str(self.path / "job.yaml"), *words).done(
            WAIT_SECONDS
        )

    def again(self, grid: str, *words: str) -> dict[str, Any]:
        """The report of a run to its end."""
        done = self.run(grid, *words or ("--resume",)).done(WAIT_SECONDS)
        assert done.code == 0, done.err
        report: dict[str, Any] = done.events[-1]
        return report

    def rows(self) -> bytes:
        """The bits of the current version, by id."""
        version = latest(self.storage, self.uri).version
        batches = list(iter_embeddings(self.storage, self.uri, version))
        order = np.argsort(np.concatenate([ids for ids, _ in batches]))
        return np.concatenate([values for _, values in batches])[order].tobytes()

    def versions(self) -> int:
        """How many are complete."""
        return len(list_versions(self.storage, self.uri))

    def kept(self) -> list[int]:
        """The layers that are complete."""
        return [layer for kept in list_layers(self.storage, self.uri) for layer in kept.layers]

    def kept_objects(self) -> list[str]:
        """URIs of all that is kept, of incomplete layers too."""
        found = (objects_of(self.storage, self.uri, key) for key in keys(self.storage, self.uri))
        return [info.uri for objects in found for info in objects]

    def killed_after(self, layer: int, grid: str = "2x1", *words: str) -> Done:
        """The end of a run of which a worker is killed once a layer is kept."""
        run = self.run(grid, "--resume", *words)
        deadline = time.monotonic() + WAIT_SECONDS
        while layer not in self.kept():
            assert time.monotonic() < deadline
            assert run.process.poll() is None
            time.sleep(0.002)
        run.kill_workers(2, 1)
        return run.done(SOON_SECONDS)

    def block_of(self, layer: int) -> str:
        """The URI of a block of a complete layer."""
        folder, seal = self.seal_of(layer)
        return f"{folder}/{seal.tensors[0].blocks[-1].path}"

    def seal_of(self, layer: int) -> tuple[str, Seal]:
        """The URI of the folder of a complete layer, and its record."""
        for key in keys(self.storage, self.uri):
            for info in objects_of(self.storage, self.uri, key):
                folder, _, name = info.uri.rpartition("/")
                if name.endswith(".seal.json"):
                    name = name.removesuffix(".seal.json")
                    seal = from_bytes(info.uri, self.storage.read(info.uri), key, name)
                    if seal.layer == layer:
                        return folder, seal
        raise AssertionError(f"layer {layer} is not complete")

    def clean(self) -> None:
        """Remove what is kept."""
        every = keys(self.storage, self.uri)
        remove(self.storage, self.uri, {k: objects_of(self.storage, self.uri, k) for k in every})
