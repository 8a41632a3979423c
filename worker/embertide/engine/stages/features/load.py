"""Reading features: each rank reads its share and keeps the rows that it read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import torch

from embertide.context import RunContext
from embertide.errors import InputError
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.io.readers.features import FeatureBatch, non_finite, read_features
from embertide.io.readers.pool import map_splits, readers
from embertide.io.readers.splits import Split
from embertide.kernels.ids import Ids
from embertide.kernels.memory import empty
from embertide.kernels.pages import empty_array
from embertide.kernels.reading import Float32s, place_rows
from embertide.spec.features import FeatureInput
from embertide.spec.nodes import Missing, NodeInput

BATCH_BYTES = 1 << 20
"""Small enough for a batch to be in the cache from its reading to its place."""


@dataclass
class RawFeatures:
    """This rank's share of the rows.

    Attributes:
        ids: as in the files, batch by batch; those that are dense in one array.
        values: [n, D] float32, in the order of the ids; or [N, D], each row at its dense id.
        placed: whether it is the latter. Rows of nodes that do not exist are nowhere then, and
            missing ones hold anything: both are refused later.
        to_place: they are on disk, and in memory would be placed.
    """

    ids: list[Ids]
    values: torch.Tensor
    placed: bool
    to_place: bool = False


@dataclass(frozen=True)
class NewRows:
    """Nodes that the model's table has no rows of: they get one row, all the same.

    Attributes:
        ids: ours of them; dense, and beyond all that have a row.
        missing: what they get, ``zeros`` or ``mean``.
        table_rows: rows of the table, of all ranks.
    """

    ids: range
    missing: Missing
    table_rows: int

    def row(self, ctx: RunContext, ours: Float32s) -> Float32s:
        """[D] what each gets; a mean is summed in float64, in the order of the ranks.

        Collective: every rank must call.

        Args:
            ours: [n, D] the rows of the table that we read.
        """
        if self.missing == "zeros":
            return np.zeros(ours.shape[1], np.float32)
        sums = ctx.exchange.all_objects(ours.sum(axis=0, dtype=np.float64).tolist())
        mean = np.sum(np.array(sums, np.float64), axis=0) / max(1, self.table_rows)
        row: Float32s = mean.astype(np.float32)
        return row


def load_features(
    ctx: RunContext,
    node: NodeInput,
    features: FeatureInput,
    splits: list[Split],
    schema: FeatureSchema,
    new: NewRows | None = None,
    beside: int = 0,
    categories: Sequence[tuple[int, int]] = (),
) -> RawFeatures:
    """Read our share of the feature rows, several splits at once.

    A rank that has all rows in memory, and dense ids, puts each row in its place at once.
    Collective: every rank must call.

    Args:
        splits: ours.
        schema: of the features, as planned.
        new: nodes without a row, ours of them; None where all have one.
        beside: columns after those of the features, which are zeros.
        categories: columns that hold whole numbers below the one beside each.

    Raises:
        InputError: rows of another width, NaN or infinite values (how many, and the first id), or
            a category that the model does not know.
    """
    # On disk, rows in any order would write a page each, where those as they are read fill them.
    places = ctx.grid.world == 1 and node.ids == "dense"
    placed = places and ctx.scratch is None
    first_rows = [0, *accumulate(split.rows for split in splits)]
    rows = first_rows[-1]
    held = rows + (0 if new is None else len(new.ids))
    nodes = node.count if placed and node.count is not None else held
    values = _room(ctx, nodes, schema.width + beside).numpy()
    loading = _Loading(ctx, node, features, schema, values, held, placed, categories)
    numbered = list(zip(splits, first_rows, strict=False))
    found = map_splits(numbered, loading.load, readers(splits, ctx.threads))
    bad = sum(split.bad for split in found)
    first = next((split.first_bad for split in found if split.bad), None)
    refuse_non_finite(ctx, features, bad, first)
    if new is not None:
        loading.ids[rows:] = new.ids
        values[rows:held] = new.row(ctx, values[:rows])
    ids = [batch for split in found for batch in split.ids]
    if node.ids == "dense":
        ids = [loading.ids]
    return RawFeatures(ids, torch.from_numpy(loading.values), placed, places and not placed)


def _room(ctx: RunContext, rows: int, width: int) -> torch.Tensor:
    """[rows, width] uninitialised, in memory or on disk."""
    return empty((rows, width)) if ctx.scratch is None else ctx.scratch.empty(rows, width).data


@dataclass
class _LoadedSplit:
    """A split's ids, how many of its values are not finite, and the id of the first such row."""

    ids: list[Ids]
    bad: int = 0
    first_bad: int | str | None = None


class _Loading:
    """Reads splits into ``values`` and ``ids``; several threads load, a split each."""

    def __init__(
        self,
        ctx: RunContext,
        node: NodeInput,
        features: FeatureInput,
        schema: FeatureSchema,
        values: Float32s,
        rows: int,
        placed: bool,
        categories: Sequence[tuple[int, int]],
    ) -> None:
        self._categories = categories
        self.values = values
        self.ids = empty_array((0 if node.ids == "string" else rows,), np.int64)
        self._node, self._features = node, features
        self._ctx, self._schema, self._placed, self._rows = ctx, schema, placed, rows
        self._done, self._counting = 0, threading.Lock()

    def load(self, split_and_first: tuple[Split, int]) -> _LoadedSplit:
        """Read a split; its first row is the given one of all that we read."""
        split, begin = split_and_first
        at = begin
        node, found = self._node, _LoadedSplit([])
        for batch in read_features(
            self._ctx.storage,
            self._features,
            node.ids,
            split,
            self._schema,
            batch_bytes=BATCH_BYTES,
            count=node.count,
        ):
            for column, count in self._categories:
                check_category(batch, self._schema, column, count)
            if not self._keep(batch, at):
                bad, first = non_finite(batch)
                found.first_bad = found.first_bad if found.bad else first
                found.bad += bad
            found.ids.append(self._kept(batch.ids, at))
            at += len(batch)
            self._progress(len(batch))
        if self._ctx.scratch is not None:
            self._ctx.scratch.of(torch.from_numpy(self.values)).settle()
            self._ctx.scratch.moved(written=self.values[begin:at].nbytes)
        return found

    def _kept(self, ids: Ids, at: int) -> Ids:
        """Strings as they are taken in any order later; integers in their place in ``ids``.

        So the next batch is decoded to where they were.
        """
        if not isinstance(ids, np.ndarray):
            return ids.cast(pa.large_string())
        self.ids[at : at + len(ids)] = ids
        return self.ids[at : at + len(ids)]

    def _keep(self, batch: FeatureBatch, at: int) -> bool:
        """Copy the rows to where they belong; whether all values are finite."""
        values = _widened(batch.values, self.values.shape[1])
        if not self._placed:
            return place_rows(self.values[at : at + len(batch)], values)
        assert isinstance(batch.ids, np.ndarray)
        known = (batch.ids >= 0) & (batch.ids < len(self.values))
        if known.all():
            return place_rows(self.values, values, batch.ids)
        return place_rows(self.values, values[known], batch.ids[known])

    def _progress(self, rows: int) -> None:
        with self._counting:
            self._done += rows
            self._ctx.work.add("features", rows=rows)
            self._ctx.progress("features", self._done / max(1, self._rows))


def check_category(batch: FeatureBatch, schema: FeatureSchema, column: int, count: int) -> None:
    """Refuse what is no whole number from 0 to count - 1.

    Raises:
        InputError: names object, row, node and column of the first one.
    """
    values = batch.values[:, column]
    bad = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= count))
    if len(bad):
        at = int(bad[0])
        node = batch.ids[at].item() if isinstance(batch.ids, np.ndarray) else str(batch.ids[at])
        named = schema.name_of(column)
        name = "" if named is None else f" ({named!r})"
        raise InputError(
            f"{batch.where.row(at)}: column {column}{name} of the features of node {node!r} is"
            f" {float(values[at]):g}, but the model knows the categories 0 to {count - 1}; clean"
            " the features, or train the model again with it"
        )


def _widened(values: Float32s, width: int) -> Float32s:
    """The same with zeros in the columns that are beside the features."""
    return (
        values
        if values.shape[1] == width
        else np.pad(values, ((0, 0), (0, width - values.shape[1])))
    )


def refuse_non_finite(
    ctx: RunContext, features: FeatureInput, count: int, first: int | str | None
) -> None:
    """Raise on every rank where any has bad rows. Collective: every rank must call.

    Args:
        count: of our bad rows.
        first: the id of the first of them.
    """
    found = ctx.exchange.all_objects((count, first))
    total = sum(n for n, _ in found)
    if total:
        name = next(first for n, first in found if n)
        after = " after scaling" if features.scaling else ""
        raise InputError(
            f"{features.location}: {total} feature row{'s have' if total > 1 else ' has'}"
            f" NaN or infinite values{after}, first node id {name!r}. Clean or drop them, then run"
            " again."
        )
