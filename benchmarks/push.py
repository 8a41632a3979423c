"""How fast `embertide push` fills an index, beside the bulk load of the index's own client.

    .venv/bin/python -m benchmarks.push --rows 200000 --dim 64 --rounds 3

Both fill an empty table or collection with the same rows, in turns. ``push`` reads the published
parts, loads, verifies and switches; ``client`` has all rows in memory already and only loads:
binary COPY of rows with pgvector's adapter (PostgreSQL; the primary key comes after the rows in
both, and neither builds an HNSW index), `create_table` from the parquet files (LanceDB), `insert`
of lists of entities (Milvus Lite), `upload_collection` (Qdrant's local mode). ``rate`` is client's
seconds by push's.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table
from embertide.edge.indexes.push.plan import Options
from embertide.edge.indexes.push.protocol import Index
from embertide.edge.indexes.push.push import push
from embertide.edge.indexes.push.qdrant import Qdrant
from embertide.edge.indexes.push.targets import open_index
from embertide.io.storage.opening import open_storage
from embertide.io.versions.parts import PartWriter
from embertide.io.versions.publish import publish
from embertide.kernels.hashing import mix
from embertide.spec.version_names import new_version, version_uri
from tests.support.postgres import postgres

_PART_ROWS = 100_000
_STEP = 16_384
_MILVUS_ROWS = 8_192


@dataclass(frozen=True)
class Rows:
    """A published version, and the same rows in memory."""

    uri: str
    ids: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]

    @property
    def files(self) -> Path:
        """The folder of its parts."""
        return next(Path(self.uri.removeprefix("file://")).glob("versions/*"))


def make(folder: Path, rows: int, dim: int) -> Rows:
    """Publish random rows, in the order of the hashes of their ids."""
    storage, uri, version = open_storage(), f"file://{folder}/out", new_version()
    ids = np.arange(rows, dtype=np.int64)
    ids = ids[np.argsort(mix(ids.view(np.uint64)))]
    vectors = np.random.default_rng(1).normal(size=(rows, dim)).astype(np.float32)
    parts = []
    for rank, first in enumerate(range(0, rows, _PART_ROWS)):
        last = min(first + _PART_ROWS, rows)
        writer = PartWriter(
            storage,
            f"{version_uri(uri, version)}/part-{rank:05d}",
            format="parquet",
            dtype="float32",
            ids_kind="int64",
            width=dim,
            rows=last - first,
        )
        with writer:
            for at in range(first, last, _STEP):
                stop = min(at + _STEP, last)
                writer.write(ids[at:stop], vectors[at:stop])
        parts.append(asdict(writer.digest))
    manifest = {"rows": rows, "dim": dim, "ids": "int64", "dtype": "float32", "parts": parts}
    publish(storage, uri, version, manifest, keep=1)
    return Rows(uri, ids, vectors)


def pushed(rows: Rows, index: Index, name: str) -> Run:
    """Push once."""
    options = Options(name=name, search_index=False)
    done = push(open_storage(), rows.uri, index, options)
    (filled,) = done.tables
    assert filled.made == "full"
    return {"seconds": done.seconds}


def timed(load: Callable[[], None]) -> Run:
    """Seconds of a call."""
    began = time.perf_counter()
    load()
    return {"seconds": time.perf_counter() - began}


def by_psycopg(uri: str, rows: Rows) -> None:
    """As pgvector's documentation loads many rows."""
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(uri) as connection:
        register_vector(connection)
        connection.execute("DROP TABLE IF EXISTS plain")
        dim = rows.vectors.shape[1]
        connection.execute(f"CREATE TABLE plain (id bigint NOT NULL, embedding vector({dim}))")
        statement = "COPY plain (id, embedding) FROM STDIN (FORMAT binary)"
        with connection.cursor().copy(statement) as copy:
            copy.set_types(["int8", "vector"])
            for name, vector in zip(rows.ids.tolist(), rows.vectors, strict=True):
                copy.write_row((name, vector))
        connection.execute("ALTER TABLE plain ADD PRIMARY KEY (id)")


def by_lancedb(location: Path, rows: Rows, name: str) -> None:
    """One table of the files."""
    import lancedb
    import pyarrow.dataset as ds

    files = sorted(rows.files.glob("*.parquet"))
    lancedb.connect(location).create_table(name, ds.dataset(files))


def by_pymilvus(client: Any, rows: Rows, name: str) -> None:
    """Lists of entities."""
    client.create_collection(name, dimension=rows.vectors.shape[1])
    for at in range(0, len(rows.ids), _MILVUS_ROWS):
        names = rows.ids[at : at + _MILVUS_ROWS].tolist()
        vectors = rows.vectors[at : at + _MILVUS_ROWS]
        entities = [{"id": i, "vector": v} for i, v in zip(names, vectors, strict=True)]
        client.insert(name, entities)
    client.flush(name)


def by_qdrant(client: Any, rows: Rows, name: str) -> None:
    """The client's own batches."""
    from qdrant_client import models

    params = models.VectorParams(size=rows.vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection(name, vectors_config=params)
    client.upload_collection(name, rows.vectors, ids=rows.ids.tolist(), wait=True)


@contextmanager
def variants(kind: str, folder: Path, rows: Rows) -> Iterator[dict[str, Callable[[], Run]]]:
    """``push`` and ``client`` of a kind of index."""
    number = 0

    def fresh() -> str:
        nonlocal number
        number += 1
        return f"rows_{number}"

    if kind == "postgresql":
        with postgres() as uri:
            index = open_index(uri)
            yield {
                "push": lambda: pushed(rows, index, fresh()),
                "client": lambda: timed(lambda: by_psycopg(uri, rows)),
            }
            index.close()
    elif kind == "lancedb":
        index = open_index(f"lancedb://{folder}/lance")
        yield {
            "push": lambda: pushed(rows, index, fresh()),
            "client": lambda: timed(lambda: by_lancedb(folder / "plain", rows, fresh())),
        }
    elif kind == "milvus":
        from pymilvus import MilvusClient

        index, client = open_index(f"milvus://{folder}/a.db"), MilvusClient(str(folder / "b.db"))
        yield {
            "push": lambda: pushed(rows, index, fresh()),
            "client": lambda: timed(lambda: by_pymilvus(client, rows, fresh())),
        }
        index.close()
        client.close()
    else:
        from qdrant_client import QdrantClient

        index = Qdrant(QdrantClient(":memory:"))
        other = QdrantClient(":memory:")
        yield {
            "push": lambda: pushed(rows, index, fresh()),
            "client": lambda: timed(lambda: by_qdrant(other, rows, fresh())),
        }


def _measure(both: dict[str, Callable[[], Run]], rounds: int, kind: str) -> dict[str, list[Run]]:
    """Rounds after one that does not count, in which libraries are imported."""
    for run in both.values():
        run()
    return alternate(both, rounds, kind)


def main(argv: list[str] | None = None) -> None:
    """Measure each kind of index, and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    kinds = ["postgresql", "lancedb", "milvus", "qdrant"]
    parser.add_argument("--index", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    cases: dict[str, Run] = {}
    for kind in given.index:
        with tempfile.TemporaryDirectory() as folder:
            rows = make(Path(folder), given.rows, given.dim)
            with variants(kind, Path(folder), rows) as both:
                runs = _measure(both, given.rounds, kind)
            found = {name: middle(of) for name, of in runs.items()}
            rate = ratio(runs["client"], runs["push"], "seconds")
            cases[kind] = {
                "push": found["push"]["seconds"],
                "client": found["client"]["seconds"],
                "rows_per_second": round(given.rows / found["push"]["seconds"]),
                "rate": rate,
            }
            save("push", {"rows": given.rows, "dim": given.dim, "indexes": cases}, given.out)
    keys = ["push", "client", "rows_per_second", "rate"]
    lines = [[kind, *(case[key] for key in keys)] for kind, case in cases.items()]
    print(table(["index", *keys], lines))


if __name__ == "__main__":
    main()
