"""What the files of a job have beside what it reads, and its edges with other ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embertide.engine.planning.inputs import Inputs
from embertide.errors import EmbertideError
from embertide.io.readers.edges import read_edges
from embertide.io.readers.feature_schema import feature_objects
from embertide.io.readers.layout import column_names
from embertide.io.readers.parquet import parquet_file
from embertide.io.readers.sources import Sources
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob

Shift = tuple[int, int]
"""What is added to the ids of the sources of edges, and of their destinations."""
_KEPT = (
    *("name", "sourceType", "destinationType", "directed", "reverse", "duplicates"),
    *("selfLoops", "unknownNodes", "weights"),
)


@dataclass(frozen=True)
class DataFiles:
    """What changes of a job are made from.

    Attributes:
        folder: for edges with other ids.
        spread: node type -> mean and standard deviation of each of its features, as they are read.
    """

    storage: Storage
    job: EmbeddingJob
    inputs: Inputs
    folder: Path
    spread: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)

    def columns_of(self, node_type: str) -> list[str]:
        """The columns of a node type's features, as the job has them; [] where they are vectors."""
        schema = self.inputs.by_nodes[node_type].schema
        return list(schema.columns or ()) if schema is not None else []

    def scaling_of(self, node_type: str) -> dict[str, list[float]]:
        """The vectors of its scaling, wherever they come from."""
        schema = self.inputs.by_nodes[node_type].schema
        scaling = None if schema is None else schema.scaling
        if scaling is None:
            return {}
        both = {"mean": scaling.mean, "scale": scaling.scale}
        return {name: list(values) for name, values in both.items() if values is not None}

    def file_order(self, node_type: str) -> list[str]:
        """Its columns, in the order of the first file; [] where it cannot be read."""
        features, wanted = self.job.spec.input.node(node_type).features, self.columns_of(node_type)
        if features is None or not wanted:
            return []
        names: list[str] = []
        with suppress(EmbertideError):
            names = self._names(feature_objects(Sources(self.storage), features)[0], numeric=False)
        return [name for name in names if name in wanted]

    def unused_of(self, edge: EdgeInput) -> list[str]:
        """Columns of numbers that the edges of an edge type have, and the job does not read."""
        used = {edge.columns.source, edge.columns.destination, edge.columns.weight}
        used |= set(edge.features.columns or ()) if edge.features is not None else set()
        names: list[str] = []
        with suppress(EmbertideError):
            first = Sources(self.storage).files(edge, "edges")[0]
            if edge.format in ("csv", "tsv"):
                names = self._header(edge, first)
            elif edge.format != "npy":
                names = self._names(first, numeric=True)
        return [name for name in names if name not in used]

    def _names(self, first: ObjectInfo, *, numeric: bool) -> list[str]:
        with parquet_file(self.storage, first, []) as (file, _):
            schema = file.schema_arrow
            if not numeric:
                return column_names(first, schema)
            kinds = {entry.name: entry.type for entry in schema}
        return [
            name
            for name, kind in kinds.items()
            if pa.types.is_floating(kind) or pa.types.is_integer(kind)
        ]

    def _header(self, edge: EdgeInput, first: ObjectInfo) -> list[str]:
        """The names in the first line of plain text; values of no numbers are refused later."""
        if not edge.header or not first.uri.endswith((".csv", ".tsv", ".txt")):
            return []
        head = self.storage.read_range(first.uri, 0, min(first.size, 1 << 16))
        line = head.split(b"\n", 1)[0].decode("utf-8-sig", "ignore")
        return [name.strip().strip('"') for name in line.strip("\r").split(edge.separator)]

    def can_shift(self, edge: EdgeInput) -> bool:
        """Whether ids of both ends are numbers."""
        ends = (edge.source_type, edge.destination_type)
        return all(self.job.spec.input.node(end).ids != "string" for end in ends)

    def shifted(self, edge: EdgeInput, shift: Shift) -> dict[str, Any]:
        """What a manifest says of the edges with other ids, which are written to the folder.

        Raises:
            EmbertideError: they cannot be read.
        """
        name = str(edge.relation).replace(":", "-")
        file = self.folder / f"{name}{shift[0]:+}{shift[1]:+}.parquet"
        columns: dict[str, Any] = {"source": "source", "destination": "destination"}
        features = 0 if edge.features is None else self.inputs.edge_features[str(edge.relation)]
        names = [f"f{at}" for at in range(features)]
        weighted = edge.columns.weight is not None
        columns |= {"weight": "weight"} if weighted else {}
        kinds = {"source": pa.int64(), "destination": pa.int64()}
        kinds |= dict.fromkeys([*(["weight"] if weighted else []), *names], pa.float32())
        if not file.exists():
            with pq.ParquetWriter(file, pa.schema(kinds)) as writer:
                for table in self._tables(edge, shift, features, names, weighted=weighted):
                    writer.write_table(table)
        given = edge.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {
            **{name: given[name] for name in _KEPT if name in given},
            **{"uri": file.as_uri(), "format": "parquet", "columns": columns},
            **({"features": {"columns": names}} if names else {}),
        }

    def _tables(
        self, edge: EdgeInput, shift: Shift, features: int, names: list[str], *, weighted: bool
    ) -> Iterator[Any]:
        data = self.job.spec.input
        kinds = data.node(edge.source_type).ids, data.node(edge.destination_type).ids
        for split in self.inputs.by_edges[str(edge.relation)]:
            for batch in read_edges(self.storage, edge, kinds, split, features=features):
                ends = zip((batch.source, batch.destination), shift, strict=True)
                arrays = [np.asarray(ids) + more for ids, more in ends]
                arrays += [] if batch.weight is None else [batch.weight]
                arrays += [] if batch.features is None else list(batch.features.T)
                ordered = ["source", "destination", *(["weight"] if weighted else []), *names]
                yield pa.table(dict(zip(ordered, arrays, strict=True)))
