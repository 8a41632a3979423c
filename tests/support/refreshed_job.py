"""A job that runs night after night over files that change, and the same without kept rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from embertide.engine.planning.estimate import estimate_job
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.layers.catalog import KeptLayers, list_layers
from embertide.io.versions.layers.seals import from_bytes
from embertide.io.versions.manifest import read_manifest, types_in
from embertide.io.versions.reading import iter_embeddings
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.commands import Done, Running
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS
from tests.support.synthetic import make_synthetic

Manifest = dict[str, Any]


class NightlyJob:
    """A synthetic job; ``more`` goes to the command that makes it.

    Attributes:
        whole: the report of the last run of all rows that a version was compared with.
    """

    whole: dict[str, Any]

    def __init__(self, folder: Path, *more: str) -> None:
        self._folder, self.path, self.storage = folder, folder / "job", open_storage(None)
        made = make_synthetic(self.path, *more)
        self._manifest: Manifest = yaml.safe_load(made.read_text())
        self.uri, self._whole = (
            (self.path / name).as_uri() for name in ("embeddings", "every_row")
        )
        self._write("whole.yaml", self._whole, None)
        self.set(keep=True, mode="incremental")

    def set(self, **refresh: object) -> None:
        """What the job says of ``refresh``."""
        self._refresh = refresh
        self._write("job.yaml", self.uri, refresh)

    def change_job(self, change: Callable[[Manifest], object]) -> None:
        """Change what the job says, by its ``spec``."""
        change(self._manifest["spec"])
        self.set(**self._refresh)

    def touch_features(self) -> None:
        """The same features, in files that count as changed."""
        for path in (self.path / "features").rglob("*.parquet"):
            path.write_bytes(path.read_bytes())

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

    def embed(self, *ids: int, words: Sequence[str] = ()) -> Done:
        """The end of computing the embeddings of some nodes."""
        asked = ("embed", str(self.path / "job.yaml"), "--ids", ",".join(map(str, ids)), *words)
        return Running(self._folder, *asked).done(WAIT_SECONDS)

    def add_nodes(self, name: str, count: int, seed: int = 7) -> range:
        """The ids of more nodes of a type, "" of the only one, that have features and no edges."""
        nodes = self._manifest["spec"]["input"]["nodes"]
        (node,) = (node for node in nodes if node.get("name", "") == name)
        new = range(node["count"], node["count"] + count)
        node["count"] += count
        self.set(**self._refresh)
        path = sorted((self.path / "features" / name).glob("*.parquet"))[-1]
        table, g = pq.read_table(path), np.random.default_rng(seed)
        kind = table.schema.field("x").type
        values = pa.array(g.standard_normal(count * kind.list_size).astype(np.float32))
        rows = pa.FixedSizeListArray.from_arrays(values, type=kind)
        more = pa.Table.from_arrays([pa.array(new, table.schema.field("id").type), rows],
                                    schema=table.schema)  # fmt: skip
        pq.write_table(pa.concat_tables([table, more]), path)
        return new

    def change_features(self, ids: Sequence[int]) -> None:
        """Other features of some nodes of the only type."""
        for path in sorted((self.path / "features").glob("*.parquet")):
            table = pq.read_table(path)
            rows = np.stack(table["x"].to_numpy()).copy()
            rows[np.isin(table["id"].to_numpy(), list(ids))] += 1
            kind = table.schema.field("x").type
            values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)
            pq.write_table(table.set_column(1, table.schema.field("x"), values), path)

    def add_edges(self, name: str, ends: Sequence[tuple[int, int]]) -> None:
        """More edges of a relation, "" of the only one."""
        path = sorted((self.path / "edges" / name).glob("*.parquet"))[-1]
        table = pq.read_table(path)
        columns = [pa.array(values, pa.int64()) for values in zip(*ends, strict=True)]
        more = pa.Table.from_arrays(columns, names=table.column_names).cast(table.schema)
        pq.write_table(pa.concat_tables([table, more]), path)

    def whole_rows(self, grid: str = "1x1") -> dict[str, np.ndarray]:
        """Node type -> [N, D] what a run of all rows over the inputs of now gives, by id."""
        self._write("whole.yaml", self._whole, None)
        self._report(self.run("whole.yaml", grid, "--force").done(WAIT_SECONDS))
        widths = {of.name: of.dim for of in types_in(self.manifest(self._whole))}
        return {
            name: np.frombuffer(data, np.float32).reshape(-1, widths[name])
            for name, data in self.rows(self._whole).items()
        }

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
        # Digests and degrees of rows are sealed first.
        while all(_is_of_layer(path, 0) for path in set(folder.glob("*/*.seal.json")) - before):
            assert time.monotonic() < deadline
            assert run.process.poll() is None
            time.sleep(0.001)
        run.kill_workers(2, 0)
        return run.done(SOON_SECONDS)

    def change_edges(self, seed: int, count: int = 2, below: str = "") -> None:
        """Other sources of some edges of each file, and an edge fewer.

        Args:
            below: the folder of an edge type, whose files alone change; "": all do.
        """
        g = np.random.default_rng(seed)
        for path in sorted((self.path / "edges" / below).rglob("*.parquet")):
            columns = {
                name: column.to_numpy().copy()
                for name, column in _columns(pq.read_table(path)).items()
            }
            source = next(iter(columns.values()))
            at = g.choice(len(source), count, replace=False)
            source[at] = source[g.choice(len(source), count)]
            pq.write_table(pa.table({name: values[1:] for name, values in columns.items()}), path)

    def change_one_edge_type(self, seed: int) -> list[str]:
        """The names of an edge type whose edges were changed, and of its reverse."""
        edges = self._manifest["spec"]["input"]["edges"]
        edge = next(edge for edge in edges if "reverse" in edge)
        self.change_edges(seed, below=edge["uri"].rstrip("/").rpartition("/")[2])
        return [edge["name"], edge["reverse"]]

    def same_as_whole(self, grid: str) -> bool:
        """Whether the current version has the bits that a run of all rows has."""
        self._write("whole.yaml", self._whole, None)
        self.whole = self._report(self.run("whole.yaml", grid, "--force").done(WAIT_SECONDS))
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

    def kept_sizes(self, layers: KeptLayers) -> tuple[int, int, int]:
        """Bytes of the rows, of the digests and of the graph of a key."""
        of_rows = of_digests = of_graph = 0
        for path in (self.path / "embeddings" / "_layers" / layers.key).glob("*.seal.json"):
            name = path.name.removesuffix(".seal.json")
            seal = from_bytes(path.as_uri(), path.read_bytes(), layers.key, name)
            of_rows += seal.size if seal.layer else 0
            of_graph += seal.size if seal.edges else 0
            of_digests += 0 if seal.layer or seal.edges else seal.size
        return of_rows, of_digests, of_graph

    def damage(self, layer: int) -> None:
        """Change a byte of every block of a layer; 0: of the digests of rows alone."""
        folder = self.path / "embeddings" / "_layers"
        for path in sorted(folder.rglob("*.seal.json")):
            other = "degrees " in path.read_text() or _is_of_graph(path)
            if _is_of_layer(path, layer) and not other:
                _damage_blocks(path)
                return
        raise AssertionError(f"layer {layer} is not kept")

    def graphs(self) -> list[Path]:
        """The records of graphs that are kept."""
        folder = self.path / "embeddings" / "_layers"
        return sorted(path for path in folder.rglob("*.seal.json") if _is_of_graph(path))

    def damage_graphs(self, part: int) -> None:
        """Change a byte of a tensor's blocks, by its number, of every graph that is kept."""
        for path in self.graphs():
            _damage_blocks(path, f"{part:03}-*")


def _is_of_layer(seal: Path, layer: int) -> bool:
    """Whether a record is of a layer; 0: of digests or degrees of rows."""
    return f'\\"layer\\":{layer},' in seal.read_text()


def _is_of_graph(seal: Path) -> bool:
    return '\\"edges\\":{' in seal.read_text()


def _damage_blocks(seal: Path, which: str = "*") -> None:
    """Change a byte of the blocks that were written for a record, wherever they lie."""
    blocks = list(seal.parents[1].rglob(f"{seal.name.removesuffix('.seal.json')}-{which}"))
    assert blocks
    for block in blocks:
        data = bytearray(block.read_bytes())
        data[0] ^= 1
        block.write_bytes(bytes(data))


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table[name] for name in table.column_names}
