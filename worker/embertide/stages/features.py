"""Features and node ids: each rank reads its share and keeps the rows that it read.

Then each node's location, the rank and row that hold its features, is sent to the node's owner
(Deal, section 3.5, Fig. 13), which is also where missing and duplicate rows are found.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.errors import InputError
from embertide.grid import RowRanges
from embertide.kernels.csr import id_type
from embertide.kernels.ids import Ids
from embertide.kernels.memory import empty
from embertide.kernels.owners import place_locations, split_by_owner
from embertide.kernels.reading import Float32s, place_rows
from embertide.layouts import Loaded
from embertide.primitives.directory import LOCATED_ROWS
from embertide.primitives.idmap import DenseIds, HashedIds, NodeIds
from embertide.readers.feature_schema import FeatureSchema
from embertide.readers.features import FeatureBatch, non_finite, read_features
from embertide.readers.nodes import read_nodes
from embertide.readers.pool import map_splits
from embertide.readers.splits import Split
from embertide.spec.nodes import NodeInput

_BATCH_BYTES = 1 << 20
"""Small enough for a batch to be in the cache from its reading to its place."""


@dataclass
class RawFeatures:
    """This rank's share of the rows.

    Attributes:
        ids: as in the files, batch by batch.
        values: [n, D] float32, in the order of the ids; or [N, D], each row at its dense id.
        placed: whether it is the latter. Rows of nodes that do not exist are nowhere then, and
            missing ones hold anything: both are refused later.
    """

    ids: list[Ids]
    values: torch.Tensor
    placed: bool


def load_features(ctx: RunContext, splits: list[Split], schema: FeatureSchema) -> RawFeatures:
    """Read our share of the feature rows, as many splits at once as we have threads.

    A rank that has all rows, and dense ids, puts each row in its place at once.
    Collective: every rank must call.

    Args:
        splits: ours.
        schema: of the features, as planned.

    Raises:
        InputError: rows of another width, NaN or infinite values (how many, and the first id).
    """
    node = ctx.nodes
    placed = ctx.grid.world == 1 and node.ids == "dense"
    first_rows = [0, *accumulate(split.stop - split.start for split in splits)]
    rows = first_rows[-1]
    nodes = node.count if placed and node.count is not None else rows
    values = empty((nodes, schema.width)).numpy()
    loading = _Loading(ctx, schema, values, rows, placed)
    found = map_splits(list(zip(splits, first_rows, strict=False)), loading.load, ctx.threads)
    bad = sum(split.bad for split in found)
    first = next((split.first_bad for split in found if split.bad), None)
    _refuse_non_finite(ctx, bad, first)
    ids = [batch for split in found for batch in split.ids]
    return RawFeatures(ids, torch.from_numpy(loading.values), placed)


@dataclass
class _LoadedSplit:
    """A split's ids, how many of its values are not finite, and the id of the first such row."""

    ids: list[Ids]
    bad: int = 0
    first_bad: int | str | None = None


class _Loading:
    """Splits on their way into ``values``; several threads load, a split each."""

    def __init__(
        self, ctx: RunContext, schema: FeatureSchema, values: Float32s, rows: int, placed: bool
    ) -> None:
        self.values = values
        self._ctx, self._schema, self._placed, self._rows = ctx, schema, placed, rows
        self._done, self._counting = 0, threading.Lock()

    def load(self, split_and_first: tuple[Split, int]) -> _LoadedSplit:
        """Read a split; its first row is the given one of all that we read."""
        split, at = split_and_first
        node, found = self._ctx.nodes, _LoadedSplit([])
        for batch in read_features(
            self._ctx.storage,
            node.features,
            node.ids,
            split,
            self._schema,
            batch_bytes=_BATCH_BYTES,
            count=node.count,
        ):
            if not self._keep(batch, at):
                bad, first = non_finite(batch)
                found.first_bad = found.first_bad if found.bad else first
                found.bad += bad
            found.ids.append(batch.ids)
            at += len(batch)
            self._progress(len(batch))
        return found

    def _keep(self, batch: FeatureBatch, at: int) -> bool:
        """Copy the rows to where they belong; whether all values are finite."""
        if not self._placed:
            return place_rows(self.values[at : at + len(batch)], batch.values)
        assert isinstance(batch.ids, np.ndarray)
        known = (batch.ids >= 0) & (batch.ids < len(self.values))
        if known.all():
            return place_rows(self.values, batch.values, batch.ids)
        return place_rows(self.values, batch.values[known], batch.ids[known])

    def _progress(self, rows: int) -> None:
        with self._counting:
            self._done += rows
            self._ctx.work.add("features", rows=rows)
            self._ctx.progress("features", self._done / max(1, self._rows))


def _refuse_non_finite(ctx: RunContext, count: int, first: int | str | None) -> None:
    """Raise on every rank where any has bad rows. Collective: every rank must call."""
    found = ctx.exchange.all_objects((count, first))
    total = sum(n for n, _ in found)
    if total:
        name = next(first for n, first in found if n)
        after = " after scaling" if ctx.nodes.features.scaling else ""
        raise InputError(
            f"{ctx.nodes.features.uri}: {total} feature row{'s have' if total > 1 else ' has'}"
            f" NaN or infinite values{after}, first node id {name!r}. Clean or drop them, then run"
            " again."
        )


def map_ids(
    ctx: RunContext, raw: RawFeatures, rows: int, table: list[Split]
) -> tuple[NodeIds, npt.NDArray[np.int64]]:
    """The nodes of the graph, and the dense id [n] of each of our loaded rows.

    The nodes are those of the node table where there is one, else those with features;
    dense ids are 0..count-1. Collective: every rank must call.

    Args:
        rows: feature rows of all ranks.
        table: our splits of the node table.

    Raises:
        InputError: an id twice, or features of a node that does not exist.
    """
    node = ctx.nodes
    ids: NodeIds
    if node.ids == "dense":
        ids = DenseIds(node.count if node.count is not None else rows, ctx.grid.rank)
    elif node.table is None:
        ids = HashedIds(ctx.exchange, raw.ids, node.ids, node.features.uri)
    else:
        batches = [
            batch.ids
            for split in table
            for batch in read_nodes(ctx.storage, node.table, node.ids, split)
        ]
        ids = HashedIds(ctx.exchange, batches, node.ids, node.table.uri)
    return ids, _dense_ids(ctx, ids, raw)


def _dense_ids(ctx: RunContext, ids: NodeIds, raw: RawFeatures) -> npt.NDArray[np.int64]:
    """[n] dense ids of the loaded rows; refuses rows of unknown nodes.

    Collective: every rank must call.
    """
    loaded = np.empty(sum(map(len, raw.ids)), np.int64)
    unknown, first, at = 0, None, 0
    for batch, (dense,) in ids.find_all((batch, [batch]) for batch in raw.ids):
        missing = np.flatnonzero(dense < 0)
        if len(missing) and first is None:
            first = _name(batch, int(missing[0]))
        unknown += len(missing)
        loaded[at : at + len(dense)] = dense
        at += len(dense)
    bad = [pair for pair in ctx.exchange.all_objects((unknown, first)) if pair[0]]
    if bad:
        total, name, uri = sum(n for n, _ in bad), bad[0][1], ctx.nodes.features.uri
        raise InputError(
            f"{uri}: {total} feature row{'s' if total > 1 else ''} of unknown nodes,"
            f" first node id {name!r}; {_known(ctx.nodes, ids.count)}"
        )
    return loaded


def _known(node: NodeInput, count: int) -> str:
    """For messages: which nodes there are, and what to do about others."""
    if node.table is not None:
        return f"the nodes are those of {node.table.uri}. Drop the rows, or add the nodes there"
    return (
        f"there are {count} feature rows and no count, so the nodes are 0 to {count - 1}. Renumber"
        " the nodes, or set ids: int64"
    )


def _name(ids: Ids, at: int) -> int | str:
    value = ids[at]
    return int(value) if isinstance(ids, np.ndarray) else str(value)


def locate_features(
    ctx: RunContext, ranges: RowRanges, ids: NodeIds, dense: npt.NDArray[np.int64]
) -> torch.Tensor:
    """Send the owner of each node the location of its features: the rank that loaded them and
    the row there.

    Sends 8 bytes per row (16 with 2^31 rows and more), ``LOCATED_ROWS`` at a time.
    Collective: every rank must call.

    Returns:
        [N/(P*M), 2] loader rank and row of each node of our sub-range, int32 where they fit, on
        the CPU.

    Raises:
        InputError: nodes without features, or with several rows of them.
    """
    longest = max(ctx.exchange.all_objects(len(dense)))
    kind = id_type(max(longest, ranges.nodes))
    channel = ctx.exchange.channel("world", "features")
    start, stop = ranges.worker(ctx.grid.rank)
    locations = torch.full((stop - start, 2), -1, dtype=kind)
    for first in range(0, longest, LOCATED_ROWS):
        some = torch.from_numpy(dense[first : first + LOCATED_ROWS])
        order, counts, rows = split_by_owner(some, ranges.workers)
        pairs = torch.stack([rows, order + first], 1).to(ctx.device, kind)
        for rank, received in enumerate(channel.all_to_all(pairs.split(counts))):
            place_locations(locations, received.cpu(), rank)
    several, none = locations[:, 0] == -2, locations[:, 0] == -1
    # First, since one id in place of another makes both.
    _refuse(ctx, ranges, ids, several, "duplicate feature rows", "Keep one row per id.")
    _refuse(ctx, ranges, ids, none, "no features", _missing_advice(ctx))
    return locations


def _missing_advice(ctx: RunContext) -> str:
    if ctx.nodes.table is not None:
        return f"Add one row for each of them, or drop them from {ctx.nodes.table.uri}."
    return "Every node needs one row; add the missing ones, or correct count."


def _refuse(
    ctx: RunContext,
    ranges: RowRanges,
    ids: NodeIds,
    bad: torch.Tensor,
    what: str,
    advice: str,
) -> None:
    """Raise on every rank when any has a bad row; names the first by its id in the files.

    Collective: every rank must call.

    Args:
        bad: [N/(P*M)] bool, of our sub-range.
    """
    rows = bad.nonzero().squeeze(1)
    counts = ctx.exchange.all_objects(len(rows))
    total = sum(counts)
    if not total:
        return
    names, _ = ids.original(ranges)
    first = [_name(names, int(at)) for at in rows[:1]]
    firsts = [name for found in ctx.exchange.all_objects(first) for name in found]
    nodes = "1 node has" if total == 1 else f"{total} nodes have"
    raise InputError(
        f"{ctx.nodes.features.uri}: {nodes} {what}, first node id {firsts[0]!r}. {advice}"
    )


def loaded_features(ctx: RunContext, raw: RawFeatures, dense: npt.NDArray[np.int64]) -> Loaded:
    """Loaded rows with their dense ids, on the device; placed rows need no ids."""
    ids = torch.from_numpy(dense[:0] if raw.placed else dense)
    return Loaded(ids, raw.values.to(ctx.device), raw.placed)
