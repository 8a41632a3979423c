"""Two published versions compared, a part of the newer one at a time: memory is a part's."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from embertide.errors import OutputError
from embertide.facts.telemetry.comparison import Comparison
from embertide.io.compare.base import Base, BaseType
from embertide.io.compare.base_rows import Previous
from embertide.io.compare.previous import Ours, compare
from embertide.io.compare.result import TypeShare, put_together
from embertide.io.compare.rows import KeyedRows, look_at
from embertide.io.compare.share import Share
from embertide.io.storage.protocol import Storage
from embertide.io.versions.keyed import bounds_of
from embertide.io.versions.keys import KeyRange, ranges_from
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.reading import read_part
from embertide.kernels.ids import Ids
from embertide.kernels.row_pairs import Values

_THREADS = 8


def compare_versions(storage: Storage, output_uri: str, older: str, newer: str) -> Comparison:
    """Compare two versions of an output by the ids of their rows.

    Args:
        older: what a run would call the previous version; it may also be the later one.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: a version is damaged, or its manifest does not say which ids its parts have.
    """
    began = time.perf_counter()
    base, ours = (
        Base.of(output_uri, version, read_manifest(storage, output_uri, version)[0])
        for version in (older, newer)
    )
    for side in (base, ours):
        if side.why:
            raise OutputError(f"{side.uri} cannot be compared: {side.why}")
    shares = [
        TypeShare(key, of_type.dim, _share_of(storage, base, ours, key))
        for key, of_type in ours.types.items()
    ]
    found = put_together(base, shares, ours.read, same_model=base.model == ours.model)
    return replace(found, seconds=time.perf_counter() - began)


def _share_of(storage: Storage, base: Base, ours: Base, key: str) -> Share:
    """The sum of the shares of a result's parts."""
    of_type = ours.types[key]
    previous = base.previous(storage, key, of_type.ids, ours.model)
    parts = [PartDigest(**part) for part in of_type.parts if part["rows"]]
    ranges = ranges_from([_start(part) for part in parts])
    shares = (
        _of_part(storage, ours.uri, of_type, part, previous, keys)
        for part, keys in zip(parts, ranges, strict=True)
    )
    total = next(shares)
    for share in shares:
        total.add(share)
    return total


def _start(part: PartDigest) -> tuple[int, ...]:
    bounds = bounds_of(part)
    assert bounds is not None
    return bounds[0]


def _of_part(
    storage: Storage,
    uri: str,
    of_type: BaseType,
    part: PartDigest,
    previous: Previous | None,
    keys: KeyRange,
) -> Share:
    ids, values = _load(storage, uri, part, of_type.dim)
    rows = KeyedRows.of(ids, of_type.ids, of_type.dim, lambda first, last: values[first:last])
    threads = min(_THREADS, os.cpu_count() or 1)
    facts, moves = look_at(rows, threads), None
    if previous is not None:
        ours = Ours(rows=rows, dtype=of_type.dtype, total=of_type.rows)
        moves = compare(ours, previous, keys, threads)
    return Share.of(facts, of_type.rows, moves)


def _load(storage: Storage, uri: str, part: PartDigest, dim: int) -> tuple[Ids, Values]:
    """All ids and values [n, D] of a part."""
    batches = list(read_part(storage, uri, part, dim))
    values = np.concatenate([values for _, values in batches])
    return _join([ids for ids, _ in batches]), values


def _join(ids: list[Any]) -> Ids:
    return np.concatenate(ids) if isinstance(ids[0], np.ndarray) else pa.concat_arrays(ids)
