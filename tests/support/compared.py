"""Published versions whose ids and values tests choose, and a slow comparison of two of them."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo
from embertide.io.versions.keys import key_words
from embertide.io.versions.manifest import together
from embertide.io.versions.parts import PartWriter
from embertide.io.versions.publish import publish
from embertide.spec.version_names import version_uri

Rows = dict[Any, npt.NDArray[np.float32]]
"""Id -> vector."""


def random_rows(count: int, width: int, seed: int, text: bool = False) -> Rows:
    """Ids from a range four times as large, and normal vectors."""
    generator = np.random.default_rng(seed)
    ids = generator.choice(4 * count, count, replace=False)
    values = generator.normal(size=(count, width)).astype(np.float32)
    names = [f"node/{number}" for number in ids] if text else ids.tolist()
    return dict(zip(names, values, strict=True))


def in_order(rows: Rows, kind: str) -> tuple[Any, npt.NDArray[np.float32]]:
    """Ids and values in the order of the ids' keys."""
    ids = list(rows)
    array = pa.array(ids, pa.large_string()) if kind == "string" else np.array(ids, np.int64)
    order = np.lexsort(key_words(array, kind).T[::-1])
    values = np.stack([rows[name] for name in ids])[order]
    return (array.take(pa.array(order)) if kind == "string" else array[order]), values


def publish_rows(
    storage: Storage,
    uri: str,
    version: str,
    rows: Rows,
    *,
    kind: str = "int64",
    cuts: tuple[float, ...] = (0.3, 0.8),
    held: tuple[str, ...] = (),
    keep: int = 100,
    format: Any = "parquet",
    dtype: Any = "float32",
    batch: int = 7,
    keys: bool = True,
    **manifest: Any,
) -> VersionInfo:
    """A version of these rows, in parts that are cut at shares of them."""
    ids, values = in_order(rows, kind)
    bounds = [0, *(round(cut * len(values)) for cut in cuts), len(values)]
    parts = []
    for rank, (first, last) in enumerate(pairwise(bounds)):
        writer = PartWriter(
            storage,
            f"{version_uri(uri, version)}/part-{rank:05d}",
            format=format,
            dtype=dtype,
            ids_kind="string" if kind == "string" else "int64",
            width=values.shape[1],
            rows=last - first,
            keys=kind if keys else None,  # type: ignore[arg-type]
        )
        with writer:
            for at in range(first, last, batch):
                stop = min(at + batch, last)
                writer.write(ids[at:stop], values[at:stop])
        parts.append(asdict(writer.digest))
    entry = {
        "rows": len(values), "dim": values.shape[1], "ids": kind, "dtype": dtype,
        "model": {"digest": "one"}, "read": {"edges": {"node:edge:node": 100}},
        "parts": parts,
    }  # fmt: skip
    return publish(storage, uri, version, {**entry, **manifest}, keep, held)


def publish_types(storage: Storage, uri: str, version: str, types: dict[str, Rows]) -> VersionInfo:
    """A version of several node types, each in one part."""
    entries = {}
    for name, rows in types.items():
        kind = "string" if isinstance(next(iter(rows)), str) else "int64"
        ids, values = in_order(rows, kind)
        writer = PartWriter(
            storage,
            f"{version_uri(uri, version)}/{name}/part-00000",
            format="parquet",
            dtype="float32",
            ids_kind="string" if kind == "string" else "int64",
            width=values.shape[1],
            rows=len(values),
            keys=kind,  # type: ignore[arg-type]
        )
        with writer:
            writer.write(ids, values)
        part = asdict(writer.digest.within(name))
        entries[name] = {
            "rows": len(values), "dim": values.shape[1], "ids": kind, "parts": [part],
        }  # fmt: skip
    return publish(storage, uri, version, {"dtype": "float32", **together(entries)}, 100)


def slow_counts(old: Rows, new: Rows) -> dict[str, int]:
    """New, removed, changed and unchanged rows, one id after the other."""
    both = [name for name in new if name in old]
    same = sum(old[name].tobytes() == new[name].tobytes() for name in both)
    return {
        "new_rows": len(new) - len(both),
        "removed_rows": len(old) - len(both),
        "changed_rows": len(both) - same,
        "unchanged_rows": same,
    }


def slow_cosines(old: Rows, new: Rows) -> npt.NDArray[np.float64]:
    """Of each row that both have with itself, in float64."""
    pairs = [(old[name].astype(float), new[name].astype(float)) for name in new if name in old]
    return np.array([a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in pairs])


def slow_overlap(old: Rows, new: Rows, near: int = 10) -> float:
    """Mean share of the nearest neighbours, among the ids that both have, by cosine."""
    names = [name for name in new if name in old]
    kept = 0
    for name in names:
        kept += len(_nearest(old, names, name, near) & _nearest(new, names, name, near))
    return kept / (near * len(names))


def _nearest(rows: Rows, names: list[Any], name: Any, near: int) -> set[Any]:
    own = rows[name] / np.linalg.norm(rows[name])
    scores = {
        other: float(own @ rows[other] / np.linalg.norm(rows[other]))
        for other in names
        if other != name
    }
    return set(sorted(scores, key=lambda other: -scores[other])[:near])
