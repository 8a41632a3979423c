"""Rows that were computed in an excerpt, beside those of the same nodes that were kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.engine.stages.infer.excerpt import Excerpt
from embertide.engine.stages.infer.excerpt_run import PRIMITIVE
from embertide.engine.stages.infer.moved import distances, finite_rows, moved_rows, within
from embertide.engine.stages.infer.restoring import place_of
from embertide.graph.exchange import Channel
from embertide.layouts import Shard
from embertide.program.plans.wanted import Rows
from embertide.program.steps.execution import Execution

AUDIT = "rows of {name} that did not change have other bits than those that were kept"
MOVED = (
    "rows of {name} that did not change are further than the tolerance from those that were kept"
)
NOT_FINITE = (
    "rows of {name} that did not change are not finite, so that their distance from those that"
    " were kept is unknown (refresh.tolerance)"
)


@dataclass(frozen=True)
class ComputedRows:
    """What an excerpt was run for."""

    excerpt: Excerpt
    execution: Execution

    def beside(
        self, whole: Execution, name: str, shard: Shard, wanted: Rows, new: Rows
    ) -> RowsBeside:
        """Our rows of a tensor, without others that were there for those that read them.

        Args:
            shard: ours of all rows, those that were kept.
            wanted: [N] bool.
            new: [N] bool, rows of nodes that were not there before.
        """
        of_type = whole.program.types[name]
        channel = self.execution.channel(0)
        values = self.execution.tensors.converted(name, shard.layout, channel).data
        (first, last), _ = place_of(whole, name, shard.layout)
        every = self.excerpt.of_ours(whole, of_type, shard.layout)
        some = wanted[first:last][every].nonzero().squeeze(1)
        axis = whole.exchange.channel("feature", PRIMITIVE) if shard.layout == "tile" else None
        numbers = every[some]
        return RowsBeside(shard, first, numbers, values[some], new[first:last][numbers], axis)


@dataclass(frozen=True)
class RowsBeside:
    """Some rows of our shard of a tensor, and what they were computed as.

    Attributes:
        shard: ours of all rows.
        first: the dense id of its first row.
        numbers: [k] int64, the rows of it, ascending.
        values: [k, d] as they were computed.
        new: [k] bool, of nodes that were not there before: what was kept means nothing.
        axis: of the feature axis; None where each rank has whole rows.
    """

    shard: Shard
    first: int
    numbers: torch.Tensor
    values: torch.Tensor
    new: Rows
    axis: Channel | None

    @property
    def kept(self) -> torch.Tensor:
        """[k, d] as they were kept."""
        return self.shard.data[self.numbers]

    def differ(self) -> Rows:
        """[k] bool, the rows that are new or have other bits. Collective: the ranks of the feature
        axis must call."""
        return moved_rows(self.kept, self.values, 0.0, self.axis) | self.new

    def put(self, some: Rows) -> None:
        """Put some of them in the place of those that were kept.

        Args:
            some: [k] bool.
        """
        self.shard.data[self.numbers[some]] = self.values[some]

    def problem(self, name: str, wrong: Rows, tolerance: float) -> str:
        """What is wrong where rows should not have moved; "": none is.

        Args:
            wrong: [k] bool, those that have.
        """
        if not bool(wrong.any()):
            return ""
        if tolerance == 0:
            return AUDIT.format(name=name)
        both = torch.cat([self.values[wrong], self.kept[wrong]])
        finite = bool(finite_rows(both, self.axis).all())
        return (MOVED if finite else NOT_FINITE).format(name=name)


@dataclass(frozen=True)
class Moves:
    """How far rows have moved.

    Attributes:
        moved: [k] bool, by more than the tolerance, or new; with a tolerance of 0 other bits.
        distance: [k] float64, infinite of new rows; with a tolerance of 0 it is not known.
    """

    moved: Rows
    distance: torch.Tensor

    @classmethod
    def of(cls, rows: RowsBeside, tolerance: float) -> Moves:
        """Collective: the ranks of the feature axis must call."""
        if tolerance == 0:
            return cls(rows.differ(), torch.empty(0, dtype=torch.float64))
        distance, norm = distances(rows.kept, rows.values, rows.axis)
        distance[rows.new] = float("inf")
        return cls(~within(distance, tolerance, norm), distance)
