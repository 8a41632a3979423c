"""The nodes of a type, and which of them each loaded row of features belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.engine.planning.inputs import NodeSplits
from embertide.engine.planning.row_inputs import part_of
from embertide.engine.stages.features.load import NewRows, RawFeatures, load_features
from embertide.engine.stages.features.places import FeaturePlaces, find_feature_places
from embertide.engine.stages.features.tables import read_tables
from embertide.errors import InputError
from embertide.facts.telemetry.omissions import FilledNodes
from embertide.footprint import FLOAT_BYTES
from embertide.graph.idmap import HashedIds
from embertide.graph.node_ids import DenseIds, NodeIds
from embertide.io.readers.nodes import read_nodes
from embertide.io.readers.splits import TARGET_BYTES, Split, assign_splits, split_ranges
from embertide.io.storage.protocol import ObjectInfo
from embertide.kernels.ids import Ids
from embertide.kernels.pages import empty_array
from embertide.layouts import Loaded, ReadRows
from embertide.spec.nodes import NodeInput

_NO_OBJECT = ObjectInfo("", 0, "")
"""The object of rows that are in none."""


@dataclass
class LoadedNodes:
    """The nodes of one type, and what this rank read of their features.

    Attributes:
        ids: of all nodes of the type.
        raw: our share of the rows; none of a type without features.
        dense: [n] dense ids of these rows.
        filled: what nodes got that a table of the model has no row of.
        places: where the features are, which are read later, for some nodes alone; None: they were
            read.
    """

    node: NodeInput
    ids: NodeIds
    raw: RawFeatures
    dense: npt.NDArray[np.int64]
    filled: list[FilledNodes] = field(default_factory=list)
    places: FeaturePlaces | None = None

    @property
    def uri(self) -> str:
        """Where the type's features are, for messages."""
        assert self.node.features is not None, "rows come from features"
        return self.node.features.location


def load_nodes(
    ctx: RunContext, node: NodeInput, splits: NodeSplits, *, later: bool = False
) -> LoadedNodes:
    """Read our share of a node type's features, and learn which nodes there are.

    Collective: every rank must call.

    Args:
        splits: of all ranks.
        later: read no features whose places are known, see :attr:`LoadedNodes.places`.

    Raises:
        InputError: a row of another width, NaN or infinite values, an id twice, or features of a
            node that does not exist.
    """
    rank, world = ctx.grid.rank, ctx.grid.world
    features, new_ids = share_of(splits, rank, world)
    new = NewRows(new_ids, node.missing, splits.feature_rows) if splits.new_rows else None
    raw = RawFeatures([], torch.empty(0, 0), placed=False)
    places = find_feature_places(ctx, node, splits) if later else None
    if node.features is not None and splits.schema is not None and places is None:
        beside = splits.table_width
        columns = splits.categories
        raw = load_features(ctx, node, node.features, features, splits.schema, new, beside, columns)
    ids = find_nodes(ctx, node, raw, splits)
    nodes = LoadedNodes(node, ids, raw, np.empty(0, np.int64), places=places)
    nodes.dense = _dense_ids(ctx, nodes)
    if splits.tables:
        nodes.filled = read_tables(ctx, node, raw, ids, nodes.dense, splits)
    raw.ids.clear()
    return nodes


def share_of(splits: NodeSplits, rank: int, world: int) -> tuple[list[Split], range]:
    """What a rank loads of a type's rows: splits of objects, and ids of nodes without a row.

    The latter come after all rows, and are divided like them, so that ranks hold equal shares.
    """
    first, width = splits.feature_rows, splits.width
    size = FLOAT_BYTES * width
    new = [
        Split.of(_NO_OBJECT, first + start, first + stop, (stop - start) * size)
        for start, stop in split_ranges(splits.new_rows, splits.new_rows * size, TARGET_BYTES)
    ]
    mine = assign_splits([*splits.features, *new], world)[rank]
    read = [split for split in mine if split.uri]
    filled = mine[len(read) :]
    return read, range(filled[0].start, filled[-1].stop) if filled else range(0)


def find_nodes(ctx: RunContext, node: NodeInput, raw: RawFeatures, splits: NodeSplits) -> NodeIds:
    """The nodes of a type: those of the node table where there is one, else those with features.

    Dense ids are 0..count-1. Collective: every rank must call.

    Raises:
        InputError: an id twice.
    """
    if node.ids == "dense":
        return DenseIds(splits.count(node), ctx.grid.rank)
    if node.table is None:
        return HashedIds(ctx.exchange, raw.ids, node.ids, node.listed_in)
    batches = [
        batch.ids
        for split in assign_splits(splits.table, ctx.grid.world)[ctx.grid.rank]
        for batch in read_nodes(ctx.storage, node.table, node.ids, split)
    ]
    return HashedIds(ctx.exchange, batches, node.ids, node.table.location)


def _dense_ids(ctx: RunContext, nodes: LoadedNodes) -> npt.NDArray[np.int64]:
    """[n] dense ids of the loaded rows; refuses rows of unknown nodes.

    Collective: every rank must call.
    """
    ids, raw = nodes.ids, nodes.raw
    if nodes.node.table is None and isinstance(ids, HashedIds):
        given = ids.given()
        if given is not None:
            return given
    unknown, first, at = 0, None, 0
    # A single array of numbers is not read again.
    in_place = len(raw.ids) == 1 and isinstance(raw.ids[0], np.ndarray)
    loaded = raw.ids[0] if in_place else empty_array((sum(map(len, raw.ids)),), np.int64)
    for batch, (dense,) in ids.find_all((batch, [batch]) for batch in raw.ids):
        missing = np.flatnonzero(dense < 0)
        if len(missing) and first is None:
            first = name_of(batch, int(missing[0]))
        unknown += len(missing)
        loaded[at : at + len(dense)] = dense
        at += len(dense)
    bad = [pair for pair in ctx.exchange.all_objects((unknown, first)) if pair[0]]
    if bad:
        total, name = sum(n for n, _ in bad), bad[0][1]
        raise InputError(
            f"{nodes.uri}: {total} feature row{'s' if total > 1 else ''} of unknown nodes,"
            f" first node id {name!r}; {_known(nodes.node, ids.count)}"
        )
    return loaded


def _known(node: NodeInput, count: int) -> str:
    """For messages: which nodes there are, and what to do about others."""
    if node.table is not None:
        return (
            f"the nodes are those of {node.table.location}. Drop the rows, or add the nodes there"
        )
    return (
        f"there are {count} feature rows and no count, so the nodes are 0 to {count - 1}. Renumber"
        " the nodes, or set ids: int64"
    )


def read_rows(ctx: RunContext, nodes: LoadedNodes, splits: NodeSplits) -> list[ReadRows]:
    """The rows that we read of each split of a node type's features, as they were loaded.

    Args:
        splits: of all ranks.
    """
    if nodes.places is not None or nodes.node.features is None:
        return []
    read, at = list[ReadRows](), 0
    for split in share_of(splits, ctx.grid.rank, ctx.grid.world)[0]:
        ids = nodes.dense[at : at + split.rows]
        start = int(ids[0]) if len(ids) else 0
        follow = bool((ids == np.arange(start, start + len(ids))).all())
        part = part_of(split)
        read.append(ReadRows(part, at, at + split.rows, start if follow else None))
        at += split.rows
    return read


def name_of(ids: Ids, at: int) -> int | str:
    """An id as it is in the files."""
    value = ids[at]
    return int(value) if isinstance(ids, np.ndarray) else str(value)


def loaded_features(ctx: RunContext, nodes: LoadedNodes) -> Loaded:
    """Loaded rows with their dense ids, on the device; placed rows need no ids.

    Those that are read later count as placed, which they would be.
    """
    raw, dense = nodes.raw, nodes.dense
    if nodes.places is not None:
        return Loaded(torch.from_numpy(dense), raw.values, placed=True)
    ids = torch.from_numpy(dense[:0] if raw.placed else dense)
    # What is stored elsewhere comes to the device in parts.
    values = ctx.exchange.staging.upload(raw.values) if ctx.scratch is None else raw.values
    return Loaded(ids, values, raw.placed, raw.to_place)
