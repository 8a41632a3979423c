"""Where the features of each node are: sent to the node's owner, which finds missing ones."""

from __future__ import annotations

import torch

from embertide.context import RunContext
from embertide.engine.stages.features.nodes import LoadedNodes, name_of
from embertide.errors import InputError
from embertide.graph.directory import LOCATED_ROWS
from embertide.grid import RowRanges
from embertide.kernels.csr import id_type
from embertide.kernels.memory import empty
from embertide.kernels.owners import (
    place_in_order,
    place_locations,
    place_sequence,
    split_by_owner,
)
from embertide.spec.nodes import NodeInput

_ONE_ROW = (
    "Keep one row per id; in features that are a history, latestBy names the column that says"
    " which."
)


def locate_features(ctx: RunContext, nodes: LoadedNodes, ranges: RowRanges) -> torch.Tensor:
    """Send the owner of each node the location of its features: the rank that loaded them and
    the row there.

    Sends 8 bytes per row (16 with 2^31 rows and more), ``LOCATED_ROWS`` at a time.
    Collective: every rank must call.

    Returns:
        [N/(P*M), 2] loader rank and row of each node of our sub-range, int32 where they fit, on
        the CPU; [0, 2] of a type without features, or whose features are read later.

    Raises:
        InputError: nodes without features, or with several rows of them.
    """
    if nodes.node.features is None or nodes.places is not None:
        return torch.empty((0, 2), dtype=torch.int32)
    dense = nodes.dense
    longest = max(ctx.exchange.all_objects(len(dense)))
    kind = id_type(max(longest, ranges.nodes))
    channel = ctx.exchange.channel("world", "features")
    start, stop = ranges.worker(ctx.grid.rank)
    locations = empty((stop - start, 2), kind)
    if ctx.grid.world == 1 and place_sequence(locations, torch.from_numpy(dense), 0):
        return locations
    locations.fill_(-1)
    if ctx.grid.world == 1:
        place_in_order(locations, torch.from_numpy(dense), 0)
        longest = 0
    for first in range(0, longest, LOCATED_ROWS):
        some = torch.from_numpy(dense[first : first + LOCATED_ROWS])
        order, counts, rows = split_by_owner(some, ranges.workers)
        pairs = torch.stack([rows, order + first], 1).to(kind)
        for rank, received in enumerate(channel.all_to_all(pairs.split(counts))):
            place_locations(locations, received, rank)
    several, none = locations[:, 0] == -2, locations[:, 0] == -1
    # First, since one id in place of another makes both.
    refuse_rows(ctx, nodes, ranges, several, several=True)
    refuse_rows(ctx, nodes, ranges, none, several=False)
    return locations


def _missing_advice(node: NodeInput) -> str:
    if node.table is not None:
        return f"Add one row for each of them, or drop them from {node.table.location}."
    return "Every node needs one row; add the missing ones, or correct count."


def refuse_rows(
    ctx: RunContext,
    nodes: LoadedNodes,
    ranges: RowRanges,
    bad: torch.Tensor,
    *,
    several: bool,
) -> None:
    """Raise on every rank when any has a bad row; names the first by its id in the files.

    Collective: every rank must call.

    Args:
        bad: [N/(P*M)] bool, nodes of our sub-range that have several rows, or none.
        several: which of the two.

    Raises:
        InputError: there are such nodes.
    """
    rows = bad.nonzero().squeeze(1)
    counts = ctx.exchange.all_objects(len(rows))
    total = sum(counts)
    if not total:
        return
    names, _ = nodes.ids.original(ranges)
    first = [name_of(names, int(at)) for at in rows[:1]]
    firsts = [name for found in ctx.exchange.all_objects(first) for name in found]
    what = "duplicate feature rows" if several else "no features"
    advice = _ONE_ROW if several else _missing_advice(nodes.node)
    those = "1 node has" if total == 1 else f"{total} nodes have"
    raise InputError(f"{nodes.uri}: {those} {what}, first node id {firsts[0]!r}. {advice}")
