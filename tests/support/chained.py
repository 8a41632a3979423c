"""Versions with deltas, written as several workers write them, and readers that apply them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from embertide.io.compare.base import current_base
from embertide.io.compare.chain import Chain, describe
from embertide.io.compare.previous import Ours, compare
from embertide.io.compare.rows import KeyedRows, as_published
from embertide.io.storage.protocol import Storage
from embertide.io.versions.deltas import delta_of
from embertide.io.versions.keys import ranges_from
from embertide.io.versions.manifest import read_manifest, types_in
from embertide.spec.version_names import version_uri
from tests.support.compared import Rows, in_order, publish_rows


def publish_chained(
    storage: Storage, uri: str, version: str, rows: Rows, tolerance: float, *,
    kind: str = "int64", dtype: Any = "float32", workers: int = 3, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Publish rows with their delta against the current version; the delta in the manifest."""
    ids, values = in_order(rows, kind)
    bounds = [len(values) * rank // workers for rank in range(workers + 1)]
    base = current_base(storage, uri)
    own = [
        KeyedRows.of(ids[a:b], kind, values.shape[1], _reader(values[a:b], dtype))
        for a, b in pairwise(bounds)
    ]
    by_rank: list[Any] = []
    ranges = ranges_from([rows.start for rows in own])
    why = "" if base.state == "compared" else "there is no version before"
    for rank, (mine, keys) in enumerate(zip(own, ranges, strict=True)):
        chain = Chain(tolerance, dtype)
        previous = base.previous(storage, "", kind, "one")
        travel = chain.begin("", mine, base, previous)
        if travel is None or previous is None:
            why = chain.why[""]
            continue
        ours = Ours(rows=mine, dtype=dtype, total=len(values), travel=travel)
        compare(ours, previous, keys, 2)
        folder, mine_ids = version_uri(uri, version), ids[bounds[rank] : bounds[rank + 1]]
        by_rank.append(chain.write(storage, folder, "", "", mine_ids, kind, rank))
    delta = {"why": why} if why else describe(base.version, tolerance, by_rank)
    publish_rows(storage, uri, version, rows, kind=kind, dtype=dtype, delta=delta, **more)
    return delta


def _reader(values: Any, dtype: str) -> Any:
    return lambda first, last: as_published(values[first:last], dtype)


def apply(storage: Storage, uri: str, version: str, rows: Rows) -> Rows:
    """What a reader has after a version's delta, who had ``rows`` before."""
    manifest, _ = read_manifest(storage, uri, version)
    (entry,) = types_in(manifest)
    delta = delta_of(version_uri(uri, version), entry)
    found = dict(rows)
    for ids in delta.deleted(storage):
        for name in ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist():
            del found[name]
    for ids, values in delta.upserted(storage):
        names = ids.tolist() if isinstance(ids, np.ndarray) else ids.to_pylist()
        found |= dict(zip(names, values, strict=True))
    return found
