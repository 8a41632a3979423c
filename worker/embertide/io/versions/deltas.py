"""The deltas of published versions: which version each is against, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from embertide.errors import InputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, open_version
from embertide.io.versions.manifest import TypeEntry
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.reading import choose_result, part_table, read_ids, read_part
from embertide.io.versions.rows import Batch, Ids, schema_of
from embertide.kernels.arrow import to_arrow


@dataclass(frozen=True, kw_only=True)
class Changes:
    """A delta in memory.

    Attributes:
        info: the version that it leads to.
        base: the version that its readers must have.
        tolerance: Euclidean distance that a row of its readers may be off, at most.
        upserts: ``pyarrow.Table`` of the rows to replace or add, with the columns ``id`` and
            ``embedding``.
        deletes: arrow array of the ids to remove.
    """

    info: VersionInfo
    base: str
    tolerance: float
    upserts: pa.Table = field(repr=False, compare=False)
    deletes: Any = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The changes of a result since the version before.

    Attributes:
        uri: of the version that it leads to.
        base: the version that it is against.
        tolerance: Euclidean distance that a row of its readers may be off, at most.
        dim: D, the length of a row.
    """

    uri: str
    base: str
    tolerance: float
    dim: int
    upserts: list[PartDigest]
    deletes: list[PartDigest]

    def upserted(self, storage: Storage) -> Iterator[Batch]:
        """The rows to replace or add, in batches of about 8 MiB.

        Raises:
            OutputError: a part is missing or damaged; names it.
        """
        for part in self.upserts:
            yield from read_part(storage, self.uri, part, self.dim)

    def deleted(self, storage: Storage) -> Iterator[Ids]:
        """The ids to remove.

        Raises:
            OutputError: a part is missing or damaged; names it.
        """
        for part in self.deletes:
            yield read_ids(storage, self.uri, part)


def delta_of(uri: str, entry: TypeEntry) -> Delta:
    """The delta of a version's result.

    Args:
        uri: of the version.

    Raises:
        InputError: it has none; says why.
    """
    found = entry.delta
    if found is None or "why" in found:
        why = "the job has no spec.output.delta" if found is None else found["why"]
        raise InputError(f"{uri} has no delta: {why}")
    return Delta(
        uri=uri,
        base=found["base"],
        tolerance=found["tolerance"],
        dim=entry.dim,
        upserts=_parts(found["upsert"]),
        deletes=_parts(found["delete"]),
    )


def _parts(found: dict[str, Any]) -> list[PartDigest]:
    return [PartDigest(**part) for part in found["parts"]]


def read_changes(
    storage: Storage,
    output_uri: str,
    version: str | None = None,
    node_type: str | None = None,
    result: str | None = None,
) -> Changes:
    """The delta of a version (default: the current one), in memory.

    Args:
        node_type: which rows, in a version of several node types.
        result: which rows, in a version of several results.

    Raises:
        InputError: it has none, and why; no such type or result.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    info, manifest = open_version(storage, output_uri, version)
    entry = choose_result(info.uri, manifest, node_type, result)
    delta = delta_of(info.uri, entry)
    kind = "string" if entry.ids == "string" else "int64"
    schema = schema_of(kind, np.dtype(manifest.get("dtype", "float32")), entry.dim)
    tables = [part_table(storage, info.uri, part) for part in delta.upserts]
    ids = [_array(ids) for ids in delta.deleted(storage)]
    return Changes(
        info=info,
        base=delta.base,
        tolerance=delta.tolerance,
        upserts=pa.concat_tables([schema.empty_table(), *tables]),
        deletes=pa.concat_arrays(ids) if ids else pa.array([], schema.field(0).type),
    )


def _array(ids: Ids) -> Any:
    return to_arrow(ids) if isinstance(ids, np.ndarray) else ids
