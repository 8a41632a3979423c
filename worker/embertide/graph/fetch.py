"""Rows of some nodes, brought to the ranks that ask for them, whatever the layout.

For a few rows at a time. Questions and answers go from rank to rank in plain messages: none of the
patterns, groups and mapped memory by which layers exchange rows are used, so that what these bring
can be compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from embertide.graph.exchange import Channel
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.owners import split_by_owner
from embertide.kernels.rows import pick_rows
from embertide.layouts import Loaded, Shard


@dataclass
class RowFetch:
    """Fetches rows of any tensors of a node type for the same nodes.

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
