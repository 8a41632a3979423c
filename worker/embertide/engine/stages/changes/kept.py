"""Digests of rows, kept with a version's layers: those that differ from an earlier run's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from embertide.engine.stages.changes.comparing import tensor_name
from embertide.engine.stages.changes.digests import RowDigests, Rows32
from embertide.errors import EmbertideError
from embertide.graph.exchange import Exchange
from embertide.io.versions.layers.patches import EarlierRows, PatchPlan, plan_patch
from embertide.io.versions.layers.seals import Block, Damaged, KeptTensor, Seal, block_of
from embertide.io.versions.layers.store import LayerStore


@dataclass(frozen=True)
class _Part:
    """Digests that are kept: what an earlier run has of them, and our own rows.

    Attributes:
        moved: [n] bool, our rows that differ from the earlier run's.
        values: None where no row has to be written.
    """

    tensor: KeptTensor
    first: int
    plan: PatchPlan | None
    moved: np.ndarray[Any, np.dtype[np.bool_]]
    values: Rows32 | None


def keep_digests(
    exchange: Exchange,
    store: LayerStore,
    name: str,
    digests: RowDigests,
    made_of: Mapping[str, str] | None = None,
    earlier: Mapping[str, EarlierRows] | None = None,
) -> str:
    """Write our digests, and seal those of all ranks; why they are not kept, "" where they are.

    Collective: every rank must call, and all get the same answer.

    Args:
        name: of the record.
        made_of: name of digests -> a digest of the objects that they are made of.
        earlier: name of digests -> what an earlier run has kept of them, where that is known.
    """
    parts = [
        _part(exchange, digests, kind, of, made_of or {}, earlier or {})
        for kind, of in digests.kinds()
    ]
    blocks, why = list[list[Block]](), ""
    try:
        blocks = [_write(store, name, n, exchange.grid.rank, part) for n, part in enumerate(parts)]
    except (EmbertideError, Damaged) as error:
        why = str(error)
    gathered = exchange.all_objects((why, [[asdict(b) for b in of] for of in blocks]))
    problems = [theirs for theirs, _ in gathered if theirs]
    if not problems and exchange.grid.rank == 0:
        tensors = [part.plan.tensor if part.plan else part.tensor for part in parts]
        joined = [
            tensor.with_blocks(tuple(block_of(b) for _, of_rank in gathered for b in of_rank[n]))
            for n, tensor in enumerate(tensors)
        ]
        problems = _seal(store, name, joined)
    every = exchange.all_objects(problems[0] if problems else "")
    return str(next(filter(None, every), ""))


def _part(
    exchange: Exchange,
    digests: RowDigests,
    kind: str,
    of: str,
    made_of: Mapping[str, str],
    earlier: Mapping[str, EarlierRows],
) -> _Part:
    """Collective: every rank must call."""
    ranges, name = digests.nodes[digests.rows_of(kind, of)].ranges, tensor_name(kind, of)
    first, last = ranges.worker(exchange.grid.rank)
    tensor = KeptTensor(
        name=name,
        rows=ranges.nodes,
        width=digests.width(kind),
        dtype="int32",
        layout="rows",
        scaled=False,
        blocks=(),
        made_of=made_of.get(name, ""),
    )
    before = earlier.get(name)
    plan = None if before is None else plan_patch(tensor, before)
    if before is None or plan is None:
        return _Part(tensor, first, None, np.ones(last - first, bool), digests.make(kind, of))
    values = digests.make(kind, of) if before.moved.any() else None
    return _Part(tensor, first, plan, before.moved[first:last], values)


def _write(store: LayerStore, name: str, number: int, rank: int, part: _Part) -> list[Block]:
    if part.values is None:
        return []
    if part.plan is None:
        parts = store.blocks(name, number, rank, part.values, part.first, 0)
    else:
        place = part.first, 0
        parts = store.patch(name, number, rank, part.values, place, part.moved, part.plan)
    return [store.write(*item) for item in parts]


def _seal(store: LayerStore, name: str, tensors: list[KeptTensor]) -> list[str]:
    """Rank 0 seals the digests of all ranks; returns why it cannot."""
    seal = Seal(
        key=store.key,
        name=name,
        version=store.version,
        layer=0,
        layers=0,
        feature=1,
        tensors=tuple(tensors),
    )
    try:
        store.seal(seal)
    except EmbertideError as error:
        return [str(error)]
    return []
