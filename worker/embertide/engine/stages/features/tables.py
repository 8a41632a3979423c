"""The model's own tables beside features: each loaded row gets the table's row of its node.

A table is read by range, a part by each rank, some rows at a time: while all ranks have a part of
theirs in memory, each asks the others for the rows of its own nodes. No rank holds a whole table.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import NodeSplits
from embertide.engine.planning.memory import TABLE_CHUNK_BYTES
from embertide.engine.planning.model_tables import TableSplit
from embertide.engine.stages.features.load import RawFeatures
from embertide.errors import InputError
from embertide.facts.telemetry.omissions import FilledNodes
from embertide.footprint import FLOAT_BYTES
from embertide.graph.directory import look_up
from embertide.graph.node_ids import NodeIds
from embertide.grid import RowRanges, even_bounds
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.io.readers.features import non_finite, read_features
from embertide.io.readers.npy_features import read_row_ids
from embertide.kernels.ids import Ids
from embertide.kernels.owners import split_by_owner
from embertide.kernels.reading import Float32s
from embertide.spec.features import FeatureInput
from embertide.spec.nodes import IdKind, NodeInput
from embertide.spec.places import literal

_ID_ROWS = 1 << 18
"""Ids of a table's rows that are looked up at a time."""
RowNumbers = npt.NDArray[np.int64]


def read_tables(
    ctx: RunContext,
    node: NodeInput,
    raw: RawFeatures,
    ids: NodeIds,
    dense: npt.NDArray[np.int64],
    splits: NodeSplits,
) -> list[FilledNodes]:
    """Fill in the columns of a node type's tables, which come after those of its features.

    For each table sends 4 bytes for each loaded row (8 with 2^31 rows and more) and receives the
    row; where its rows have ids, also 16 bytes for each of these and 4 and 8 for each loaded row.
    Collective: every rank must call.

    Args:
        raw: our loaded rows, with their ids.
        ids: of all nodes of the type.
        dense: [n] dense ids of our rows.

    Returns:
        What nodes got that a table has no row of.

    Raises:
        InputError: a node has no row and ``missing`` is ``refuse``, or a table holds NaN or Inf.
    """
    values, start, filled = raw.values.numpy(), splits.feature_width, list[FilledNodes]()
    nodes = np.arange(len(values)) if raw.placed else dense
    for table in splits.tables:
        wanted = _rows_of(ctx, node, ids, table, nodes)
        missing = np.flatnonzero(wanted < 0)
        total = sum(ctx.exchange.all_objects(len(missing)))
        if total and node.missing == "refuse":
            _refuse(ctx, node, raw, table, missing)
        columns = values[:, start : start + table.columns]
        mean = _copy_rows(ctx, table, wanted, columns)
        if total:
            columns[missing] = mean if node.missing == "mean" else 0.0
            filled.append(FilledNodes(node.name, total, table.rows, node.missing))
        start += table.columns
    return filled


def _rows_of(
    ctx: RunContext, node: NodeInput, ids: NodeIds, table: TableSplit, nodes: npt.NDArray[np.int64]
) -> RowNumbers:
    """[n] the table's row of each node; -1 where it has none. Collective: every rank must call."""
    if table.split.ids_uri is None:
        return np.where(nodes < table.rows, nodes, -1).astype(np.int64)
    bounds = tuple(even_bounds(ids.count, ctx.grid.world))
    channel = ctx.exchange.channel("world", "features")
    first, stop = bounds[ctx.grid.rank : ctx.grid.rank + 2]
    at = torch.full((stop - first,), -1, dtype=torch.int64)
    known, rows = _nodes_of_rows(ctx, node, ids, table)
    order, counts, places = split_by_owner(known, bounds)
    pairs = torch.stack([places, rows[order]], 1)
    for received in channel.all_to_all(pairs.split(counts)):
        at[received[:, 0]] = received[:, 1]
    asked = torch.from_numpy(np.ascontiguousarray(nodes, dtype=np.int64))
    return look_up(channel, RowRanges(bounds, 1), at, asked).numpy()


def _nodes_of_rows(
    ctx: RunContext, node: NodeInput, ids: NodeIds, table: TableSplit
) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense ids and row numbers of our part of a table's rows, without those of unknown nodes.

    Collective: every rank must call.
    """
    start, stop = even_bounds(table.rows, ctx.grid.world)[ctx.grid.rank : ctx.grid.rank + 2]
    kind: IdKind = "int64" if node.ids == "dense" else node.ids
    part = replace(table.split, start=start, stop=stop)
    batches = ((len(some), [some]) for some in read_row_ids(ctx.storage, kind, part, _ID_ROWS))
    known, rows, at = [np.empty(0, np.int64)], [np.empty(0, np.int64)], start
    for count, (dense,) in ids.find_all(batches):
        there = np.flatnonzero(dense >= 0)
        known.append(dense[there].astype(np.int64))
        rows.append(there + at)
        at += count
    return torch.from_numpy(np.concatenate(known)), torch.from_numpy(np.concatenate(rows))


def _copy_rows(ctx: RunContext, table: TableSplit, wanted: RowNumbers, to: Float32s) -> Float32s:
    """Copy a table's rows to where they are wanted, some rows of each rank's part at a time.

    Collective: every rank must call.

    Args:
        wanted: [n] row numbers; those below 0 are left out.
        to: [n, columns].

    Returns:
        [columns] the mean of all rows, summed in float64 in the order of the ranks.
    """
    channel = ctx.exchange.channel("world", "features")
    order = np.argsort(wanted, kind="stable")
    ascending = torch.from_numpy(wanted[order])
    sums = np.zeros(table.columns)
    parts = list(pairwise(even_bounds(table.rows, ctx.grid.world)))
    # So many that what all ranks send to one of them is bounded as well.
    step = max(1, TABLE_CHUNK_BYTES // (FLOAT_BYTES * table.columns * ctx.grid.world))
    for first in range(0, max(stop - start for start, stop in parts), step):
        spans = [
            (min(start + first, stop), min(start + first + step, stop)) for start, stop in parts
        ]
        own = _read_rows(ctx, table, *spans[ctx.grid.rank])
        sums += own.sum(axis=0, dtype=np.float64)
        ends = torch.searchsorted(ascending, torch.tensor(spans)).tolist()
        questions = [
            (ascending[low:high] - start).to(torch.int32)
            for (low, high), (start, _) in zip(ends, spans, strict=True)
        ]
        asked = channel.all_to_all(questions)
        rows = torch.from_numpy(own)
        answers = channel.all_to_all([rows.index_select(0, some) for some in asked])
        for (low, high), answer in zip(ends, answers, strict=True):
            to[order[low:high]] = answer.numpy()
    total = np.sum(np.array(ctx.exchange.all_objects(sums.tolist())), axis=0)
    mean: Float32s = (total / table.rows).astype(np.float32)
    return mean


def _read_rows(ctx: RunContext, table: TableSplit, start: int, stop: int) -> Float32s:
    """[stop - start, columns] of a table.

    Raises:
        InputError: it holds NaN or Inf.
    """
    rows = np.empty((stop - start, table.columns), np.float32)
    part = replace(table.split, start=start, stop=stop, ids_uri=None)
    features = FeatureInput(uri=literal(part.uri), format="npy")
    schema, at = FeatureSchema(table.columns), 0
    for batch in read_features(ctx.storage, features, "dense", part, schema):
        bad, first = non_finite(batch)
        if bad:
            raise InputError(
                f"{part.uri}: row {first} of the model's table holds NaN or infinite values; export"
                " the model again"
            )
        rows[at : at + len(batch)] = batch.values
        at += len(batch)
    return rows


def _refuse(
    ctx: RunContext, node: NodeInput, raw: RawFeatures, table: TableSplit, missing: RowNumbers
) -> None:
    """Raise on every rank. Collective: every rank must call."""
    first = [_id_of(raw, int(at)) for at in missing[:1]]
    by_rank = ctx.exchange.all_objects((len(missing), first))
    total, name = sum(count for count, _ in by_rank), next(ids for _, ids in by_rank if ids)[0]
    raise InputError(
        f"{table.split.uri}: {total} node{'s' if total > 1 else ''} of type {node.name!r} have no"
        f" row in the model's table of {table.rows} rows, first node id {name!r}. Train the model"
        " again with them, drop them from the features, or set missing: zeros or mean, which new"
        " nodes get"
    )


def _id_of(raw: RawFeatures, at: int) -> int | str:
    """The id in the files of a loaded row."""
    if raw.placed:
        return at
    ids: Ids
    for ids in raw.ids:
        if at < len(ids):
            return int(ids[at]) if isinstance(ids, np.ndarray) else str(ids[at])
        at -= len(ids)
    raise AssertionError("every loaded row has an id")
