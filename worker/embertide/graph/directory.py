"""Looking up a few numbers per node at the rank that owns the node, or rows of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch

from embertide.graph.exchange import Channel
from embertide.graph.in_place import WindowRows, shared
from embertide.graph.node_ids import Dense
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.counting import count_outside
from embertide.kernels.csr import id_type
from embertide.kernels.owners import split_by_owner
from embertide.kernels.rows import pick_rows
from embertide.layouts import Loaded, Shard

LOCATED_ROWS = 1 << 20
"""Loaded rows of which a rank tells the owners at a time where they are."""


def look_up(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """Values of any nodes from a table that is spread in the ``rows`` layout.

    Sends 4 bytes per node (8 with 2^31 nodes and more) and receives a row of ``values`` for it.
    Collective: every rank must call.

    Args:
        channel: of the world axis.
        values: [N/(P*M)] or [N/(P*M), k] of our sub-range's nodes.
        nodes: [n] dense ids, any order.
    """
    order, counts, rows = split_by_owner(nodes, ranges.workers)
    found = _answers(channel, values, rows.to(id_type(ranges.nodes)).split(counts))
    result = torch.empty_like(found)
    result[order] = found
    return result


def look_up_ascending(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """As :func:`look_up`, of [n] ascending ids, which are in the order of their owners.

    Collective: every rank must call.
    """
    kind, bounds = id_type(ranges.nodes), torch.tensor(ranges.workers, dtype=nodes.dtype)
    ends = torch.searchsorted(nodes, bounds).tolist()
    parts = (nodes[low:high] for low, high in pairwise(ends))
    owners = zip(parts, ranges.workers, strict=False)
    return _answers(channel, values, [(part - first).to(kind) for part, first in owners])


def _answers(
    channel: Channel, values: torch.Tensor, questions: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The owners' rows of the values that each is asked for, in the order of the owners."""
    asked, staging = channel.all_to_all(questions), channel.staging
    found = [values[staging.indices(rows.long(), values)] for rows in asked]
    return torch.cat(channel.all_to_all([staging.download(rows) for rows in found]))


def fetch_rows(
    channel: Channel, ranges: RowRanges, rows: torch.Tensor, wanted: Dense
) -> torch.Tensor:
    """[n, D] on the CPU: the rows of some nodes, in their order, as :func:`look_up` gives them.

    Each row is sent once to a worker, however often it is wanted. Collective: every rank must call.

    Args:
        rows: [N/(P*M), D] those of our sub-range.
        wanted: [n] dense ids; repeated ones are allowed.
    """
    nodes, places = np.unique(wanted, return_inverse=True)
    found = look_up_ascending(channel, ranges, rows, torch.from_numpy(nodes))
    return found[torch.from_numpy(places.reshape(-1))]


def look_up_in_place(
    channel: Channel, ranges: RowRanges, values: torch.Tensor, nodes: torch.Tensor
) -> torch.Tensor:
    """As :func:`look_up`, of ranks that read each other's tables where they stand.

    Collective: every rank must call.
    """
    window = WindowRows(np.array(ranges.workers, np.int64))
    with shared(channel, [values]) as (seen,):
        found = seen.window(window).index_select(0, window.of_nodes(nodes))
    remote = count_outside(nodes, *ranges.worker(channel.grid.rank))
    channel.read_in_place(remote * found.element_size() * math.prod(found.shape[1:]))
    return found


@dataclass
class RowFetch:
    """Fetches rows of any tensors of a node type for the same nodes, whatever the layout.

    For a few rows at a time. Questions and answers go from rank to rank in plain messages: none of
    the patterns, groups and mapped memory by which layers exchange rows are used, so that what they
    bring can be compared with it.

    Attributes:
        channel: of the world axis.
        ranges: which worker owns which nodes of the type.
        nodes: [n] int64 dense ids, in any order, on the CPU.
    """

    channel: Channel
    ranges: RowRanges
    nodes: torch.Tensor
    _asked: dict[str, _Asked] = field(default_factory=dict)

    def of(self, shard: Shard) -> torch.Tensor:
        """[n, width] float32, on the CPU. Collective: every rank must call.

        Sends 8 bytes for each node to each rank that has a part of its row, and the row back.
        """
        slices = self.channel.grid.feature if shard.layout == "tile" else 1
        asked = self._ask("tile" if slices > 1 else "rows", slices)
        widths = ColumnSlices(shard.width, slices)
        parts = asked.answers(
            self.channel,
            shard.data,
            [widths.size(rank % slices) for rank in range(self.channel.grid.world)],
        )
        joined = [torch.cat(parts[at : at + slices], 1) for at in range(0, len(parts), slices)]
        return asked.in_order(joined, shard.width)

    def of_loaded(self, loaded: Loaded, locations: torch.Tensor) -> torch.Tensor:
        """[n, D] features from the ranks that loaded them. Collective: every rank must call.

        Args:
            locations: [N/(P*M), 2] loader rank and row of our sub-range's nodes.
        """
        owners = self._ask("rows", 1)
        where = owners.in_order(owners.answers(self.channel, locations, 2), 2, torch.int64)
        order = torch.argsort(where[:, 0], stable=True)
        counts = torch.bincount(where[:, 0], minlength=self.channel.grid.world).tolist()
        asked = _Asked.of(self.channel, order, where[order, 1].split(counts))
        return asked.in_order(asked.answers(self.channel, loaded.data, loaded.width), loaded.width)

    def _ask(self, layout: str, slices: int) -> _Asked:
        """Tell the holders of our nodes which rows we want, once for each layout."""
        if layout not in self._asked:
            bounds = self.ranges.workers if slices == 1 else self.ranges.partitions
            order, counts, rows = split_by_owner(self.nodes, bounds)
            parts = rows.split(counts)
            questions = [parts[rank // slices] for rank in range(self.channel.grid.world)]
            self._asked[layout] = _Asked.of(self.channel, order, questions)
        return self._asked[layout]


@dataclass(frozen=True)
class _Asked:
    """Rows that ranks want of each other.

    Attributes:
        order: [n] the place among our nodes of each row that we get, rank by rank.
        counts: rows that we get from each rank.
        wanted: for each rank the rows [k] of ours that it gets.
    """

    order: torch.Tensor
    counts: Sequence[int]
    wanted: Sequence[torch.Tensor]

    @classmethod
    def of(cls, channel: Channel, order: torch.Tensor, questions: Sequence[torch.Tensor]) -> _Asked:
        """Collective: every rank must call."""
        return cls(order, [len(part) for part in questions], channel.all_to_all(questions))

    def answers(
        self, channel: Channel, data: torch.Tensor, widths: int | Sequence[int]
    ) -> list[torch.Tensor]:
        """From each rank [count, its width], on the CPU. Collective: every rank must call.

        Args:
            data: [rows, our width] our part of the tensor, or [rows, panels, columns] of it.
            widths: columns that each rank has; or the number that all have.
        """
        ranks = range(channel.grid.world)
        kind = data.dtype if not data.is_floating_point() else torch.float32
        columns = [widths] * len(ranks) if isinstance(widths, int) else widths
        own = columns[channel.axis.index]
        picked = [pick_rows(data, rows, own) for rows in self.wanted]
        sent = [rows.cpu().to(kind).contiguous() for rows in picked]
        found = [torch.empty(self.counts[r], columns[r], dtype=kind) for r in ranks]
        found[channel.axis.index] = sent[channel.axis.index]
        others = channel.axis.others()
        channel.start([(r, sent[r]) for r in others], [(r, found[r]) for r in others]).wait()
        return found

    def in_order(
        self, parts: Sequence[torch.Tensor], width: int, kind: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """[n, width] of what the ranks sent, as our nodes were asked for."""
        out = torch.empty(len(self.order), width, dtype=kind)
        out[self.order] = torch.cat(list(parts)).to(kind)
        return out
