"""Digests of our rows beside those that an earlier run has kept: which rows differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from embertide.engine.stages.changes.digests import (
    DIGEST_WORDS,
    EDGES,
    FEATURES,
    IDS,
    OUT,
    PRIMITIVE,
    KeptDigests,
    RowDigests,
    Rows32,
    SomeDigests,
    digest_values,
    read_words,
    tensor_name,
)
from embertide.graph.exchange import Exchange
from embertide.graph.moved_edges import MovedEdges
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged
from embertide.io.versions.layers.writing import EarlierRows
from embertide.kernels.hashing import Words
from embertide.program.steps.frontier import Changes
from embertide.spec.relations import ends_of

Dense = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EarlierDigests:
    """The digests that an earlier run has kept.

    Attributes:
        unchanged: names of those whose inputs have not changed since: where nodes have the dense
            ids that they had, these are neither made nor compared.
        fresh: names of those of features of which only some parts have: likewise the rows of
            these parts alone are.
        moved: relation -> the edges that have moved since: likewise the rows of their ends alone.
    """

    kept: Kept
    unchanged: Collection[str] = ()
    fresh: Mapping[str, Collection[str]] = field(default_factory=dict)
    moved: Mapping[str, MovedEdges] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """What differs from an earlier run.

    Attributes:
        before: node type -> [N] int64 the dense id that each node had then, -1 for new ones.
        kept: name of digests -> those of then, and rows that differ, where no row has moved.
    """

    before: dict[str, torch.Tensor]
    changes: Changes
    kept: dict[str, EarlierRows]


def find_changes(exchange: Exchange, digests: RowDigests, earlier: EarlierDigests) -> Compared:
    """Compare our rows with those of an earlier run.

    Every rank takes 16 bytes for each node that was there. Collective: every rank must call.

    Raises:
        Damaged: the digests of then are not what was written; on all ranks alike.
    """
    return _Comparison(exchange, digests, earlier).compare()


class _Comparison:
    def __init__(self, exchange: Exchange, digests: RowDigests, earlier: EarlierDigests) -> None:
        self._exchange, self._digests, self._earlier = exchange, digests, earlier
        self._kept = earlier.kept
        self._why = ""
        self._before: dict[str, torch.Tensor] = {}
        self._stays: dict[str, bool] = {}

    def compare(self) -> Compared:
        """See :func:`find_changes`."""
        for of_type in self._digests.nodes:
            if self._is_unchanged(IDS, of_type):
                self._before[of_type] = torch.arange(self._digests.nodes[of_type].ranges.nodes)
                self._stays[of_type] = True
                continue
            self._before[of_type] = self._every(torch.from_numpy(self._places_of(of_type)))
            self._stays[of_type] = self._is_same(of_type)
        self._agree()
        differ = {
            (kind, name): self._differ(kind, name)
            for kind, name in self._digests.kinds()
            if kind != IDS
        }
        self._agree()
        new = {of_type: rows < 0 for of_type, rows in self._before.items()}
        features, edges, out = (
            {name: rows for (of, name), rows in differ.items() if of == kind}
            for kind in (FEATURES, EDGES, OUT)
        )
        changes = Changes(new=new, features=features, edges=edges, out=out)
        return Compared(self._before, changes, self._earlier_rows(differ))

    def _agree(self) -> None:
        """Collective: every rank must call, and all raise if any has a reason."""
        if problems := list(filter(None, self._exchange.all_objects(self._why))):
            raise Damaged(problems[0])

    def _is_same(self, of_type: str) -> bool:
        """Whether each node has the dense id that it had, and none is new or gone."""
        before = self._before[of_type]
        same = self._kept.has(tensor_name(IDS, of_type)) == len(before)
        return same and bool((before == torch.arange(len(before))).all())

    def _places_of(self, of_type: str) -> Dense:
        """[n] the dense id that each of our nodes had; -1: it is new."""
        ids = self._digests.make(IDS, of_type).view(np.uint64)
        try:
            name = tensor_name(IDS, of_type)
            every = 0, self._kept.tensor(name).rows
            kept = read_words(self._kept, name, every, DIGEST_WORDS).view(np.uint64)
        except Damaged as error:
            self._why = str(error)
            return np.full(len(ids), -1, np.int64)
        first, _ = self._digests.nodes[of_type].ranges.worker(self._exchange.grid.rank)
        return match_ids(kept, ids, first)

    def _differ(self, kind: str, name: str) -> torch.Tensor:
        """[N] bool, the rows whose digest is not that of then, or that are new.

        Collective: every rank must call.
        """
        of_type = self._digests.rows_of(kind, name)
        if self._is_unchanged(kind, name):
            return torch.zeros(len(self._before[of_type]), dtype=torch.bool)
        some = self._some(kind, name)
        if some is not None:
            return self._every(torch.from_numpy(self._some_differ(kind, name, some)))
        places = None
        if kind == EDGES and not self._stays[source := ends_of(name)[0]]:
            places = self._before[source]
        values = self._digests.make(kind, name, places)
        first, last = self._digests.nodes[of_type].ranges.worker(self._exchange.grid.rank)
        before, differ = self._before[of_type][first:last].numpy(), np.ones(len(values), bool)
        try:
            differ = self._compared(tensor_name(kind, name), values, before)
        except Damaged as error:
            self._why = str(error)
        return self._every(torch.from_numpy(differ))

    def _is_unchanged(self, kind: str, name: str) -> bool:
        """Whether digests are those of then, since nothing that they are made of has changed."""
        own = tensor_name(kind, name)
        if kind == IDS:
            same = self._kept.has(own) == self._digests.nodes[name].ranges.nodes
        else:
            ends = (name,) if kind == FEATURES else ends_of(name)
            same = all(self._stays[of_type] for of_type in ends)
        return same and own in self._earlier.unchanged

    def _some(self, kind: str, name: str) -> SomeDigests | None:
        """Those of our rows that alone may differ; None where it is not known which.

        Collective: every rank must call.
        """
        own = tensor_name(kind, name)
        if kind == FEATURES:
            known = own in self._earlier.fresh and self._stays[name]
            return self._digests.of_parts(name, self._earlier.fresh[own]) if known else None
        moved = self._earlier.moved.get(name)
        if moved is None or not all(self._stays[of_type] for of_type in ends_of(name)):
            return None
        if kind == EDGES:
            return self._digests.of_rows(name, moved.rows)
        first, last = self._digests.nodes[ends_of(name)[0]].ranges.worker(self._exchange.grid.rank)
        rows, more = moved.out_degrees()
        ours = (rows >= first) & (rows < last)
        try:
            then = read_words(self._kept, own, rows[ours], self._digests.width(OUT))
        except Damaged as error:
            self._why = str(error)
            then = np.zeros((int(ours.sum()), self._digests.width(OUT)), np.int32)
        now = then.view(np.int64) + more[ours, None]
        return SomeDigests(rows[ours] - first, now.view(np.int32))

    def _some_differ(self, kind: str, name: str, some: SomeDigests) -> npt.NDArray[np.bool_]:
        """[n] bool, our rows that differ from those of then, which are among some."""
        own = tensor_name(kind, name)
        first, last = self._digests.nodes[self._digests.rows_of(kind, name)].ranges.worker(
            self._exchange.grid.rank
        )
        differ = np.zeros(last - first, bool)
        try:
            kept = read_words(self._kept, own, some.rows + first, some.values.shape[1])
        except Damaged as error:
            self._why = str(error)
            return differ
        differ[some.rows] = (kept != some.values).any(axis=1)
        self._digests.put(kind, name, KeptDigests(self._kept, own, first, last, some))
        return differ

    def _compared(self, name: str, values: Rows32, before: Dense) -> npt.NDArray[np.bool_]:
        """[n] bool, our rows that differ from those of then."""
        differ, known = np.ones(len(values), bool), before >= 0
        old = before[known]
        if len(old):
            low, high = int(old.min()), int(old.max()) + 1
            kept = read_words(self._kept, name, (low, high), values.shape[1])
            differ[known] = (kept[old - low] != values[known]).any(axis=1)
        return differ

    def _earlier_rows(self, differ: dict[tuple[str, str], torch.Tensor]) -> dict[str, EarlierRows]:
        kept = dict[str, EarlierRows]()
        for kind, name in self._digests.kinds():
            of_type, own = self._digests.rows_of(kind, name), tensor_name(kind, name)
            # Digests of in-edges have the dense ids of the sources.
            ends = (*ends_of(name), of_type) if kind == EDGES else (of_type,)
            count = self._kept.has(own)
            if count is not None and all(self._stays[end] for end in ends):
                moved = differ.get((kind, name))
                rows = np.zeros(count, bool) if moved is None else moved.numpy()
                kept[own] = EarlierRows(self._kept.store.key, self._kept.tensor(own), rows)
        return kept

    def _every(self, rows: torch.Tensor) -> torch.Tensor:
        """All ranks' rows, in order. Collective: every rank must call."""
        channel = self._exchange.channel("world", PRIMITIVE)
        if rows.dtype == torch.bool:
            return torch.cat(channel.all_gather(rows.to(torch.uint8))).bool()
        return torch.cat(channel.all_gather(rows))


def find_before(kept: Kept, of_type: str, ids: Words) -> Dense:
    """[n] the dense id that each of some nodes had when ids were kept; -1: it is new.

    Takes 16 bytes for each node that was there.

    Args:
        kept: the digests.
        ids: [n, 2] digests of the ids of these nodes.

    Raises:
        Damaged: the ids are not there, or are not what was written.
    """
    name = tensor_name(IDS, of_type)
    every = read_words(kept, name, (0, kept.tensor(name).rows), DIGEST_WORDS)
    return match_ids(every.view(np.uint64), ids)


def count_newer(kept: Kept, of_type: str, values: torch.Tensor, places: Dense) -> int:
    """How many rows of features are others than when their digests were kept.

    Args:
        kept: the digests.
        values: [k, D] the rows.
        places: [k] the dense ids of their nodes then.

    Raises:
        Damaged: the digests are not there, or are not what was written.
    """
    then = read_words(kept, tensor_name(FEATURES, of_type), places, DIGEST_WORDS)
    return int((then != digest_values(values).view(np.int32)).any(axis=1).sum())


def match_ids(kept: Words, ids: Words, first: int = 0) -> Dense:
    """[n] the dense id that each of some nodes had when ids were kept; -1: it is new.

    Args:
        kept: [N, 2] digests of the ids of all nodes then, by dense id.
        ids: [n, 2] digests of the ids of these nodes.
        first: the dense id of the first of these, if they follow each other.
    """
    before = np.full(len(ids), -1, np.int64)
    # Where no node is new and none is gone, all are where they were.
    there = kept[first : first + len(ids)]
    (same,) = np.nonzero((there == ids[: len(there)]).all(axis=1))
    before[same] = first + same
    (others,) = np.nonzero(before < 0)
    if len(others) and len(kept):
        before[others] = _places(kept, ids[others])
    return before


def _places(kept: Words, ids: Words) -> Dense:
    """[k] the row of each id among those that were kept; -1: it is not among them."""
    heads, order = np.ascontiguousarray(kept[:, 0]), None
    if (heads[1:] < heads[:-1]).any():
        order = np.argsort(heads, kind="stable")
    at = np.minimum(np.searchsorted(heads, ids[:, 0], sorter=order), len(kept) - 1)
    rows = at if order is None else order[at]
    # Several ids with one first half: those that are not met at once count as new.
    return np.where((kept[rows] == ids).all(axis=1), rows, -1)
