"""Digests of rows, kept with a version's layers and compared with those of a later run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.errors import EmbertideError
from embertide.grid import RowRanges
from embertide.kernels.hashing import Words
from embertide.plans.dirty import Changes, ends_of
from embertide.primitives.exchange import Exchange
from embertide.stages.changes.digests import PRIMITIVE, RowDigests
from embertide.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.versions.layers.store import LayerStore

Rows32 = npt.NDArray[np.int32]
Dense = npt.NDArray[np.int64]
Ranges = dict[str, RowRanges]


def keep_digests(
    exchange: Exchange, store: LayerStore, name: str, digests: RowDigests, ranges: Ranges
) -> str:
    """Write our digests, and seal those of all ranks; why they are not kept, "" where they are.

    Collective: every rank must call, and all get the same answer.

    Args:
        name: of the record.
        ranges: node type -> which worker owns which nodes, by the job's grid.
    """
    tensors, why = list[KeptTensor](), ""
    try:
        for number, (of, of_type, values) in enumerate(_tensors(digests)):
            first, _ = ranges[of_type].worker(exchange.grid.rank)
            parts = store.blocks(name, number, exchange.grid.rank, values, first, 0)
            tensors.append(
                KeptTensor(
                    name=of,
                    rows=ranges[of_type].nodes,
                    width=values.shape[1],
                    dtype="int32",
                    layout="rows",
                    scaled=False,
                    blocks=tuple(store.write(*part) for part in parts),
                )
            )
    except EmbertideError as error:
        why = str(error)
    gathered = exchange.all_objects((why, [asdict(tensor) for tensor in tensors]))
    problems = [theirs for theirs, _ in gathered if theirs]
    if not problems and exchange.grid.rank == 0:
        problems = _seal(store, name, [theirs for _, theirs in gathered])
    every = exchange.all_objects(problems[0] if problems else "")
    return str(next(filter(None, every), ""))


def _seal(store: LayerStore, name: str, of_ranks: list[list[dict[str, Any]]]) -> list[str]:
    """Rank 0 seals the digests of all ranks; returns why it cannot."""
    joined = [
        KeptTensor.from_json({**ours[0], "blocks": [b for one in ours for b in one["blocks"]]})
        for ours in zip(*of_ranks, strict=True)
    ]
    seal = Seal(
        key=store.key,
        name=name,
        version=store.version,
        layer=0,
        layers=0,
        feature=1,
        tensors=tuple(joined),
    )
    try:
        store.seal(seal)
    except EmbertideError as error:
        return [str(error)]
    return []


def _tensors(digests: RowDigests) -> Iterator[tuple[str, str, Rows32]]:
    """Name, node type and [n, words] of everything that is kept."""
    for of_type, words in digests.ids.items():
        yield f"ids {of_type}", of_type, _narrow(words)
    for of_type, words in digests.features.items():
        yield f"features {of_type}", of_type, _narrow(words)
    for relation, words in digests.edges.items():
        yield f"edges {relation}", ends_of(relation)[1], _narrow(words)
    for relation, counts in digests.out.items():
        yield f"out {relation}", ends_of(relation)[0], _narrow(counts.reshape(-1, 1))


def _narrow(values: npt.NDArray[Any]) -> Rows32:
    return np.ascontiguousarray(values).view(np.int32)


def find_changes(
    exchange: Exchange, store: LayerStore, seal: Seal, digests: RowDigests, ranges: Ranges
) -> tuple[dict[str, torch.Tensor], Changes]:
    """Node type -> [N] the dense id that each node had then, -1 for new ones; and what changed.

    Every rank takes 16 bytes for each node that was there. Collective: every rank must call.

    Raises:
        Damaged: the digests of then are not what was written; on all ranks alike.
    """
    return _Comparison(exchange, store, seal, digests, ranges).compare()


class _Comparison:
    """Our digests beside those that were kept."""

    def __init__(
        self,
        exchange: Exchange,
        store: LayerStore,
        seal: Seal,
        digests: RowDigests,
        ranges: Ranges,
    ) -> None:
        self._exchange, self._store, self._digests, self._ranges = exchange, store, digests, ranges
        self._kept = {tensor.name: tensor for tensor in seal.tensors}

    def compare(self) -> tuple[dict[str, torch.Tensor], Changes]:
        """See :func:`find_changes`."""
        before, differ, why = dict[str, Dense](), dict[str, torch.Tensor](), ""
        try:
            before = {of: self._before(of, ids) for of, ids in self._digests.ids.items()}
            for name, of_type, values in _tensors(self._digests):
                if not name.startswith("ids "):
                    differ[name] = self._differ(name, values, before[of_type])
        except Damaged as error:
            why = str(error)
        if problems := list(filter(None, self._exchange.all_objects(why))):
            raise Damaged(problems[0])
        all_before = {of: self._every(torch.from_numpy(rows)) for of, rows in before.items()}
        every = {name: self._every(rows) for name, rows in differ.items()}

        def of(kind: str) -> dict[str, torch.Tensor]:
            start = f"{kind} "
            return {n.removeprefix(start): r for n, r in every.items() if n.startswith(start)}

        new = {of_type: rows < 0 for of_type, rows in all_before.items()}
        changes = Changes(new=new, features=of("features"), edges=of("edges"), out=of("out"))
        return all_before, changes

    def _every(self, rows: torch.Tensor) -> torch.Tensor:
        """All ranks' rows, in order. Collective: every rank must call."""
        channel = self._exchange.channel("world", PRIMITIVE)
        if rows.dtype == torch.bool:
            return torch.cat(channel.all_gather(rows.to(torch.uint8))).bool()
        return torch.cat(channel.all_gather(rows))

    def _before(self, of_type: str, ids: Words) -> Dense:
        """[n] the dense id that each of our nodes had; -1: it is new."""
        tensor = self._tensor(f"ids {of_type}")
        kept = self._read(tensor, 0, tensor.rows, 4).view(np.uint64)
        before = np.full(len(ids), -1, np.int64)
        # Where no node is new and none is gone, all are where they were.
        first, _ = self._ranges[of_type].worker(self._exchange.grid.rank)
        there = kept[first : first + len(ids)]
        (same,) = np.nonzero((there == ids[: len(there)]).all(axis=1))
        before[same] = first + same
        (others,) = np.nonzero(before < 0)
        if len(others) and len(kept):
            before[others] = _places(kept, ids[others])
        return before

    def _differ(self, name: str, values: Rows32, before: Dense) -> torch.Tensor:
        """[n] bool, our rows whose digest is not that of then, or that are new."""
        differ, known = np.ones(len(values), bool), before >= 0
        old = before[known]
        if len(old):
            low, high = int(old.min()), int(old.max()) + 1
            kept = self._read(self._tensor(name), low, high, values.shape[1])
            differ[known] = (kept[old - low] != values[known]).any(axis=1)
        return torch.from_numpy(differ)

    def _tensor(self, name: str) -> KeptTensor:
        if name not in self._kept:
            raise Damaged(f"{self._store.uri}: it has no digests of {name}")
        return self._kept[name]

    def _read(self, tensor: KeptTensor, first: int, last: int, width: int) -> Rows32:
        if tensor.dtype != "int32" or tensor.width != width or last > tensor.rows:
            raise Damaged(f"{self._store.uri}: the digests {tensor.name} are not of such rows")
        out = np.empty((last - first, width), np.int32)
        self._store.read(tensor, (first, last), (0, width), out)
        return out


def _places(kept: Words, ids: Words) -> Dense:
    """[k] the row of each id among those that were kept; -1: it is not among them."""
    heads, order = np.ascontiguousarray(kept[:, 0]), None
    if (heads[1:] < heads[:-1]).any():
        order = np.argsort(heads, kind="stable")
    at = np.minimum(np.searchsorted(heads, ids[:, 0], sorter=order), len(kept) - 1)
    rows = at if order is None else order[at]
    # Of several ids with one first half, those that are not met at once count as new.
    return np.where((kept[rows] == ids).all(axis=1), rows, -1)
