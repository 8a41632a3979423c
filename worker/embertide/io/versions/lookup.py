"""The embeddings of some ids: only the parts, and of parquet the row groups, that have them."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embertide.errors import InputError, OutputError
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import open_version
from embertide.io.versions.embeddings import Embeddings
from embertide.io.versions.formats import format_of
from embertide.io.versions.keyed import bounds_of
from embertide.io.versions.keys import Key, key_at, key_words
from embertide.io.versions.manifest import TypeEntry
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.reading import choose_result, stored_part
from embertide.io.versions.rows import ID_COLUMN, schema_of

_SHOWN = 5


def read_rows_of(
    storage: Storage,
    output_uri: str,
    ids: Iterable[int | str],
    version: str | None = None,
    node_type: str | None = None,
    missing: str = "error",
    result: str | None = None,
) -> Embeddings:
    """The rows of some ids as one table, in the order of the ids; each id once.

    Args:
        version: by default the current one.
        node_type: which rows, in a version of several node types.
        missing: ``error``, or ``skip`` to leave out ids that the version does not have.
        result: which rows, in a version of several results.

    Raises:
        InputError: an id is not there, or of the wrong type; or no such node type or result.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    info, manifest = open_version(storage, output_uri, version)
    uri = info.uri
    chosen = choose_result(uri, manifest, node_type, result)
    kind = chosen.ids
    given = ids.tolist() if hasattr(ids, "tolist") else ids
    wanted = _as_array(list(dict.fromkeys(given)), kind, uri)
    parts = _parts_with(chosen.digests, wanted, kind)
    tables = map_objects(parts, lambda part: _rows_of(storage, uri, part, wanted))
    table = _in_order(tables, wanted, manifest, chosen)
    if missing == "error" and table.num_rows < len(wanted):
        raise InputError(_unknown(wanted, table, uri))
    return Embeddings(info, table)


def _as_array(ids: Sequence[int | str], kind: str, uri: str) -> Any:
    """[k] ids as an arrow array of the version's type."""
    text = kind == "string"
    wrong = next((item for item in ids if isinstance(item, str) != text), None)
    if kind and wrong is not None:
        must = "strings" if text else "whole numbers"
        raise InputError(f"{uri} has ids that are {must}; {wrong!r} is none")
    try:
        numbers = [item if isinstance(item, str) else operator.index(item) for item in ids]
        return pa.array(numbers, pa.large_string() if text else pa.int64())
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InputError(
            f"ids must all be whole numbers of 64 bits, or all strings: {error}"
        ) from None


def _parts_with(parts: list[PartDigest], wanted: Any, kind: str) -> list[PartDigest]:
    """Those that may have one of the ids; all where the manifest does not say."""
    if not len(wanted) or not kind:
        return [part for part in parts if part.rows and len(wanted)]
    ids = wanted if kind == "string" else wanted.to_numpy()
    words = key_words(ids, kind)
    keys = sorted(key_at(words, row) for row in range(len(words)))
    return [part for part in parts if part.rows and _has_any(part, keys)]


def _has_any(part: PartDigest, keys: list[Key]) -> bool:
    bounds = bounds_of(part)
    if bounds is None:
        return True
    at = bisect.bisect_left(keys, bounds[0])
    return at < len(keys) and keys[at] <= bounds[1]


def _rows_of(storage: Storage, folder_uri: str, part: PartDigest, wanted: Any) -> Any:
    """The rows of a part with one of the ids, as a table."""
    stored = stored_part(storage, folder_uri, part)
    return format_of(stored).rows_with(stored, wanted)


def _in_order(tables: list[Any], wanted: Any, manifest: dict[str, Any], chosen: TypeEntry) -> Any:
    """One table in the order of the ids."""
    if not tables:
        kind = "string" if pa.types.is_large_string(wanted.type) else "int64"
        dtype = np.dtype(manifest.get("dtype", "float32"))
        return schema_of(kind, dtype, chosen.dim).empty_table()
    table = pa.concat_tables(tables)
    if table[ID_COLUMN].type != wanted.type:
        raise OutputError(f"the ids of the version are {table[ID_COLUMN].type}, not {wanted.type}")
    places = pc.index_in(table[ID_COLUMN], wanted)
    return table.take(pc.sort_indices(places))


def _unknown(wanted: Any, table: Any, uri: str) -> str:
    there = pc.is_in(wanted, table[ID_COLUMN].combine_chunks())
    absent = wanted.filter(pc.invert(there))
    names = ", ".join(repr(item) for item in absent.slice(0, _SHOWN).to_pylist())
    more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
    return (
        f"{len(absent)} of {len(wanted)} ids are not in {uri}: {names}{more};"
        " missing='skip' leaves them out"
    )
