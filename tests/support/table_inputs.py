"""Delta and Iceberg tables as inputs: written by their libraries, read as a run reads them."""

from __future__ import annotations

import base64
import json
import struct
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.reading import iter_embeddings
from embertide.spec.manifest import EdgeInput

_MAGIC = 1681511377
"""Of a bitmap of deleted rows: https://github.com/delta-io/delta/blob/master/PROTOCOL.md."""


def edges(uri: str | Path, form: str, **fields: Any) -> EdgeInput:
    """A table as the edges of a job."""
    at = uri if isinstance(uri, str) else f"file://{uri}"
    return EdgeInput.model_validate({"uri": at, "format": form, **fields})


def read_rows(
    item: EdgeInput, ids: Any = "int64", storage: Storage | None = None, target: int = 1 << 20
) -> list[tuple[Any, ...]]:
    """All edges with their weights, sorted.

    Args:
        ids: of both ends, or of each.
    """
    kinds = ids if isinstance(ids, tuple) else (ids, ids)
    storage = storage or open_storage(None)
    rows: list[tuple[Any, ...]] = []
    for split in split_edges(storage, item, target, kinds):
        read = 0
        for batch in read_edges(storage, item, kinds, split, 100):
            columns = [batch.source.tolist(), batch.destination.tolist()]
            if batch.weight is not None:
                columns.append(batch.weight.tolist())
            rows += zip(*columns, strict=True)
            read += len(batch)
        assert read == split.rows
    return sorted(rows)


def embeddings(output: Path) -> np.ndarray:
    """All embeddings of an output's current version, by id."""
    batches = list(iter_embeddings(open_storage(None), f"file://{output}", None))
    ids = np.concatenate([ids for ids, _ in batches])
    return np.concatenate([values for _, values in batches])[np.argsort(ids)]


@contextmanager
def iceberg_catalog(folder: Path) -> Iterator[Any]:
    """A catalog in memory, whose tables lie below a folder."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    try:
        catalog.create_namespace("n")
        yield catalog
    finally:
        catalog.close()


class DeltaByHand:
    """A Delta table whose commits are written by hand, for what its library does not write."""

    def __init__(self, folder: Path, fields: Sequence[dict[str, Any]], **about: Any) -> None:
        self.folder, self.commits = folder, 0
        (folder / "_delta_log").mkdir(parents=True)
        features = about.get("features", [])
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": features, "writerFeatures": features}
        schema = json.dumps({"type": "struct", "fields": list(fields)})
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": about.get("partitions", []),
            "configuration": about.get("configuration", {}),
            "createdTime": 0,
        }
        self.commit({"protocol": protocol}, {"metaData": metadata})

    def commit(self, *actions: dict[str, Any]) -> None:
        """Write a commit of these actions."""
        path = self.folder / "_delta_log" / f"{self.commits:020}.json"
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        self.commits += 1

    def add(self, name: str, table: pa.Table, **fields: Any) -> dict[str, Any]:
        """Write a file of data, and give the action that adds it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=100)
        action = {
            "path": name,
            "size": path.stat().st_size,
            "partitionValues": {},
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": json.dumps({"numRecords": table.num_rows}),
        }
        return {"add": action | fields}

    def inline_vector(self, rows: Sequence[int]) -> dict[str, Any]:
        """A deletion vector that stands in the log."""
        data = _bitmap(rows)
        coded = _z85(data + b"\0" * (-len(data) % 4))
        fields = {"storageType": "i", "pathOrInlineDv": coded, "sizeInBytes": len(data)}
        return {"deletionVector": fields | {"cardinality": len(rows)}}

    def stored_vector(self, rows: Sequence[int]) -> dict[str, Any]:
        """A deletion vector in a file of its own."""
        name, data = uuid.uuid4(), _bitmap(rows)
        framed = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        (self.folder / f"deletion_vector_{name}.bin").write_bytes(b"\x01" + framed)
        fields: dict[str, Any] = {"storageType": "u", "pathOrInlineDv": _z85(name.bytes)}
        fields |= {"offset": 1, "sizeInBytes": len(data), "cardinality": len(rows)}
        return {"deletionVector": fields}


def field(name: str, kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    """A column of a table's schema."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _bitmap(rows: Sequence[int]) -> bytes:
    return struct.pack("<I", _MAGIC) + bytes(BitMap64(rows).serialize())


def _z85(data: bytes) -> str:
    """Z85, the alphabet of which differs from that of ``base64.b85encode``."""
    ours = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(data).decode().translate(str.maketrans(ours, z85))
