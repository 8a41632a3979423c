"""The rows that sums read: where they are found, and what it takes to bring them.

Several steps of a layer may sum the same rows over different relations: their sources are found
together, and each row is brought once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from embertide.graph.arriving import Operand, tile_operand
from embertide.graph.directory import look_up, look_up_ascending, look_up_in_place
from embertide.graph.exchange import Channel
from embertide.graph.ghosts import GhostGraph, ghosts_of
from embertide.graph.graph import LayerGraph
from embertide.graph.in_place import WindowRows, shared
from embertide.graph.landing import loaded_operand, rows_at
from embertide.graph.sources import LoadedHolders, Sources
from embertide.kernels import memory
from embertide.kernels.csr import id_type
from embertide.kernels.ghosts import on_ghosts
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op

SOURCE_BYTES = 14
"""A source while its row is looked up at its loader."""
_CHECKED_IDS = 1 << 16
"""Ids that are checked at a time for whether they follow each other."""
_REQUEST_BYTES = 4
"""The number of a row that was requested."""


def place(x: str, at: Alive) -> Input:
    """How sums read their sources: where they were loaded, or in a tile.

    One partition puts loaded rows in order instead: another pattern would cost more than the
    copy, and than the few rows that no edge needs.
    """
    loaded = at.has(x, "loaded") and at.grid.graph > 1
    return Input(x, "loaded" if loaded else "tile")


def are_in_place(x: str, at: Alive) -> bool:
    """Whether rows are read in place: then each sum is computed by itself, when it is needed."""
    return at.in_place and (at.grid.feature == 1 or place(x, at).layout == "tile")


def find(
    execution: Execution, op: Op, steps: Sequence[EdgeStep], factors: torch.Tensor | None
) -> tuple[Channel, list[Sources], Operand]:
    """The rows that steps sum, and each step's non-zeros. Collective: every rank must call.

    Args:
        steps: of one layer, over relations whose rows travel once for all.
        factors: [N/P] of our rows as sources, or None.
    """
    x, layer = steps[0].x, steps[0].layer
    graphs = [execution.graph(step.edges) for step in steps]
    relations = [step.relation for step in steps]
    if op.reads(x, "loaded"):
        channel = execution.channel(layer, "world", "features", *relations)
        sources = _at_loaders(channel, execution, x, graphs)
        return channel, sources, _loaded(channel, execution, x, factors)
    rows = execution.gathered(x, "tile", layer)
    if rows is not execution.tile(x, layer):
        # The copy is what is summed.
        execution.tensors.read(x)
    operand = tile_operand(rows, factors)
    channel = execution.channel(layer, "graph", "spmm", *relations)
    return channel, graphs[0].tiles_with(graphs[1:]), operand


def _ghosts_at_loaders(
    channel: Channel,
    execution: Execution,  # noqa: ARG001
    x: str,
    graphs: Sequence[LayerGraph],
) -> list[Sources]:
    """Rows are located at their loaders; what stays until they have been summed is kept."""
    exchange, (first, *others) = ghosts_of(channel), graphs
    assert isinstance(first, GhostGraph)
    union = exchange.size.of_relations([graph.relation for graph in graphs])
    blocks = sum(exchange.block.get(graph.relation, 0.0) for graph in graphs)
    if exchange.size.reads_all:
        finding, asked = union.index_bytes * union.columns / union.workers, 0.0
    else:
        finding, asked = SOURCE_BYTES * union.unique(), _REQUEST_BYTES * union.unique()
    held = exchange.buffer(blocks + asked)
    exchange.ledger.need(max(0.0, finding - asked))
    return first.found(others, loaded=x, held=held)


@on_ghosts(_ghosts_at_loaders)
def _at_loaders(
    channel: Channel, execution: Execution, x: str, graphs: Sequence[LayerGraph]
) -> list[Sources]:
    """Features on the ranks that loaded them. Collective: every rank must call."""
    ranges, locations = execution.ranges_of(x), execution.locations[execution.program.types[x]]
    if execution.reads_all:
        # Each sum is computed by itself.
        (graph,) = graphs
        return [_seen_at_loaders(execution, channel, x, graph)]
    holders = LoadedHolders(channel.axis, partial(look_up_ascending, channel, ranges, locations))
    return graphs[0].loaded_with(graphs[1:], holders)


def _seen_at_loaders(execution: Execution, channel: Channel, x: str, graph: LayerGraph) -> Sources:
    """Features in the memory of the ranks that loaded them. Collective: every rank must call."""
    locations = execution.locations[execution.program.types[x]]
    ids = execution.tensors.loaded(x).ids
    loaded = execution.exchange.all_objects((len(ids), first_in_order(ids)))
    window = WindowRows(np.cumsum([0, *(count for count, _ in loaded)]))
    owned = WindowRows(np.array(execution.ranges_of(x).workers, np.int64))
    if [first for _, first in loaded] == window.bounds[:-1].tolist():
        return graph.loaded_in_place(window, partial(window.of_rows, others=owned))
    rows = _rows_in(window, locations)
    # Before rows are shared: nothing else may be exchanged while they are.
    channel.read_in_place(graph.tiles().read_in_place * rows.element_size())
    with shared(channel, [rows]) as (where,):
        return graph.loaded_in_place(window, partial(_picked, where.window(owned)))


def _rows_in(window: WindowRows, locations: torch.Tensor) -> torch.Tensor:
    """[n] where the features of our nodes are in a window of all that were loaded."""
    rows = memory.empty((len(locations),), id_type(window.end))
    for span, some in rows_at(window, [locations]):
        rows[span] = some
    return rows


def _picked(values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    rows = memory.empty((len(at),), values.dtype)
    return torch.index_select(values, 0, at, out=rows)


def first_in_order(ids: torch.Tensor) -> int | None:
    """The first of ids that follow each other; None where they do not, or there are none."""
    parts = ids.split(_CHECKED_IDS) if len(ids) else ()
    first = expected = int(ids[0]) if len(ids) else 0
    for part in parts:
        if int(part[0]) != expected or not bool((part.diff() == 1).all()):
            return None
        expected += len(part)
    return first if parts else None


def _loaded_ghosts(
    channel: Channel, execution: Execution, x: str, factors: torch.Tensor | None
) -> Operand:
    return loaded_operand(channel, execution.tensors.loaded(x), factors, execution.row_type)


@on_ghosts(_loaded_ghosts)
def _loaded(
    channel: Channel, execution: Execution, x: str, factors: torch.Tensor | None
) -> Operand:
    """Loaded features, and factors of them. Collective: every rank must call."""
    loaded, scale = execution.tensors.loaded(x), None
    if factors is not None:
        staging = channel.staging
        mine = staging.download(execution.of_ours(factors, "rows", x))
        find = look_up_in_place if execution.reads_all else look_up
        scale = staging.upload(find(channel, execution.ranges_of(x), mine, loaded.ids))
    return loaded_operand(channel, loaded, scale, execution.row_type)
