"""A job that runs night after night over files that change, and the same without kept rows."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from embertide.planning.estimate import estimate_job
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from embertide.storage.opening import open_storage
from embertide.versions.catalog import latest
from embertide.versions.layers.catalog import KeptLayers, list_layers
from embertide.versions.layers.seals import from_bytes
from embertide.versions.manifest import read_manifest, types_in
from embertide.versions.reading import iter_embeddings
from tests.support.commands import Done, Running
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS

Manifest = dict[str, Any]


class NightlyJob:
    """A synthetic job; ``more`` goes to the command that makes it."""

    def __init__(self, folder: Path, *more: str) -> None:
        self._folder, self.path, self.storage = folder, folder / "job", open_storage(None)
        made = Running(folder, "synth", str(self.path), "--quiet", *more)
        assert made.done(WAIT_SECONDS).code == 0
        self._manifest: Manifest = yaml.safe_load((self.path / "job.yaml").read_text())
        self.uri, self._whole = (
            (self.path / name).as_uri() for name in ("embeddings", "every_row")
        )
        self._write("whole.yaml", self._whole, None)
        self.set(keep=True, mode="incremental")

    def set(self, **refresh: object) -> None:
        """What the job says of ``refresh``."""
        self._write("job.yaml", self.uri, refresh)

    def _write(self, name: str, output: str, refresh: dict[str, object] | None) -> None:
        spec = {**self._manifest["spec"], "output": {"uri": output}}
        if refresh is not None:
            spec["refresh"] = refresh
        (self.path / name).write_text(yaml.safe_dump({**self._manifest, "spec": spec}))

    def night(self, grid: str, *words: str) -> dict[str, Any]:
        """The report of a run to its end."""
        return self._report(self.run("job.yaml", grid, *words).done(WAIT_SECONDS))

    def run(self, name: str, grid: str, *words: str) -> Running:
        """A run that has been started."""
        manifest = str(self.path / name)
        return Running(self._folder, "run", manifest, "--grid", grid, "--json", *words)

    def embed(self, *ids: int) -> Done:
        """The end of computing the embeddings of some nodes."""
        words = ("embed", str(self.path / "job.yaml"), "--ids", ",".join(map(str, ids)))
        return Running(self._folder, *words).done(WAIT_SECONDS)

    @staticmethod
    def _report(done: Done) -> dict[str, Any]:
        assert done.code == 0, done.err
        report: dict[str, Any] = done.events[-1]
        return report

    def killed(self, grid: str) -> Done:
        """The end of a run of which a worker is killed once its first layer is kept."""
        folder = self.path / "embeddings" / "_layers"
        before = set(folder.glob("*/*.seal.json"))
        run = self.run("job.yaml", grid)
        deadline = time.monotonic() + WAIT_SECONDS
        # The digests of rows are there first.
        while len(set(folder.glob("*/*.seal.json")) - before) < 2:
            assert time.monotonic() < deadline
            assert run.process.poll() is None
            time.sleep(0.001)
        os.kill(run.workers(2)[0], signal.SIGKILL)
        return run.done(SOON_SECONDS)

    def change_edges(self, seed: int, count: int = 2) -> None:
        """Other sources of some edges of each file, and an edge fewer."""
        g = np.random.default_rng(seed)
        for path in sorted((self.path / "edges").rglob("*.parquet")):
            columns = {
                name: column.to_numpy().copy()
                for name, column in _columns(pq.read_table(path)).items()
            }
            source = next(iter(columns.values()))
            at = g.choice(len(source), count, replace=False)
            source[at] = source[g.choice(len(source), count)]
            pq.write_table(pa.table({name: values[1:] for name, values in columns.items()}), path)

    def same_as_whole(self, grid: str) -> bool:
        """Whether the current version has the bits that a run of all rows has."""
        self._report(self.run("whole.yaml", grid, "--force").done(WAIT_SECONDS))
        return self.rows(self.uri) == self.rows(self._whole)

    def rows(self, uri: str) -> dict[str, bytes]:
        """Node type -> the bits of the current version, by id."""
        version, rows = latest(self.storage, uri).version, {}
        for of_type in types_in(self.manifest(uri)):
            batches = list(iter_embeddings(self.storage, uri, version, of_type.name or None))
            order = np.argsort(np.concatenate([ids for ids, _ in batches]))
            rows[of_type.name] = np.concatenate([values for _, values in batches])[order].tobytes()
        return rows

    def manifest(self, uri: str = "") -> Manifest:
        """Of the current version."""
        uri = uri or self.uri
        return read_manifest(self.storage, uri, latest(self.storage, uri).version)[0]

    def kept(self) -> list[KeptLayers]:
        """What is kept."""
        return list_layers(self.storage, self.uri)

    def planned(self, grid: str) -> list[str]:
        """Notes of the plan."""
        job = load_manifest(self.path / "job.yaml")
        return estimate_job(job, grid=GridShape.parse(grid)).notes

    def kept_sizes(self, layers: KeptLayers) -> tuple[int, int]:
        """Bytes of the rows and of the digests of a key."""
        of_rows = of_digests = 0
        for path in (self.path / "embeddings" / "_layers" / layers.key).glob("*.seal.json"):
            name = path.name.removesuffix(".seal.json")
            seal = from_bytes(path.as_uri(), path.read_bytes(), layers.key, name)
            of_rows += seal.size if seal.layer else 0
            of_digests += 0 if seal.layer else seal.size
        return of_rows, of_digests

    def damage(self, layer: int) -> None:
        """Change a byte of every block of a layer; 0: of the digests of rows."""
        folder = self.path / "embeddings" / "_layers"
        for path in sorted(folder.rglob("*.seal.json")):
            text = path.read_text()
            if f'\\"layer\\":{layer},' in text:
                for block in folder.rglob(f"{path.name.removesuffix('.seal.json')}-*"):
                    data = bytearray(block.read_bytes())
                    data[0] ^= 1
                    block.write_bytes(bytes(data))
                return
        raise AssertionError(f"layer {layer} is not kept")


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table[name] for name in table.column_names}
