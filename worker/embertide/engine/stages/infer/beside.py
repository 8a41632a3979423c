"""What is kept beside the rows of a run with a tolerance.

All changes of inputs are followed to the rows that read them. So the rows of the first layer are
computed with the bits of a run of all rows, though what is kept of a row that has not moved by more
than the tolerance is what it was. What it is now stays beside that, and errors are measured from it
on. Of rows of other layers it is kept how far they may be from what their layer makes of the rows
before (:mod:`embertide.engine.stages.infer.distances`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.engine.stages.infer.moved import bits_of
from embertide.layouts import Shard


@dataclass(frozen=True)
class Beside:
    """What is kept of some rows of our shard of a tensor, beside those that dependents have seen.

    Attributes:
        rows: [k] int64, of the shard, ascending.
        values: [k, d]; of exact rows our columns, as a run of all rows has them.
    """

    rows: torch.Tensor
    values: torch.Tensor

    def after(
        self, shard: Shard, computed: torch.Tensor, values: torch.Tensor, dirty: torch.Tensor
    ) -> Beside:
        """The exact rows for the next run.

        Args:
            shard: what dependents see from now on.
            computed: [n] int64, the rows of it that were computed, ascending.
            values: [n, d] those rows.
            dirty: [n] bool, those that may differ from the run before.
        """
        differ = dirty & (bits_of(values) != bits_of(shard.data[computed])).any(1)
        again = torch.zeros(len(shard.data), dtype=torch.bool)
        again[computed[dirty]] = True
        stay = ~again[self.rows]
        rows = torch.cat([self.rows[stay], computed[differ]])
        order = rows.argsort()
        every = torch.cat([self.values[stay], values[differ]])
        return Beside(rows[order], every[order])

    def put_into(self, data: torch.Tensor, picked: torch.Tensor) -> None:
        """Put the exact rows among some of the shard's.

        Args:
            data: [n, d] those rows, which are changed.
            picked: [n] int64, which rows they are, ascending.
        """
        if not len(picked):
            return
        at = torch.searchsorted(picked, self.rows).clamp(max=len(picked) - 1)
        there = picked[at] == self.rows
        data[at[there]] = self.values[there]
