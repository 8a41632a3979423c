"""What attention over a block is given: a column slice's heads, scores of pairs, running sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from embertide.kernels.memory import empty_as

NO_SCORES = -1e30
"""The logarithm of a sum of none: finite, so that a softmax over such is one, too."""


@dataclass(frozen=True)
class HeadColumns:
    """The columns ``start..stop`` of a tensor of ``width`` columns, and the heads they belong to.

    A slice may begin or end within a head.
    """

    heads: int
    width: int
    start: int
    stop: int

    @property
    def per_head(self) -> int:
        """Columns of one whole head."""
        return self.width // self.heads

    @property
    def first(self) -> int:
        """The first head that the columns belong to."""
        return self.start // self.per_head

    @property
    def count(self) -> int:
        """Heads that the columns belong to."""
        return -(-self.stop // self.per_head) - self.first

    @property
    def offset(self) -> int:
        """Columns of the first head that lie before the slice."""
        return self.start - self.first * self.per_head

    @property
    def span(self) -> slice:
        """The slice's heads, of all."""
        return slice(self.first, self.first + self.count)

    def each(self) -> Iterator[tuple[int, slice]]:
        """(head counted from ``first``, its columns counted from ``start``)."""
        for head in range(self.count):
            low = head * self.per_head - self.offset
            yield head, slice(max(low, 0), min(low + self.per_head, self.stop - self.start))


@dataclass(frozen=True, kw_only=True)
class PairScore:
    """How a score follows from a key and a query [H, F] of a non-zero, one number per head.

    - ``gatv2``: sum_f vector[h, f] * leaky_relu(key[h, f] + query[h, f])
    - ``dot``: scale * sum_f key[h, f] * query[h, f]

    Attributes:
        vector: [H, F], contiguous; of ``gatv2`` only.
    """

    kind: Literal["gatv2", "dot"]
    heads: int
    vector: torch.Tensor | None = None
    slope: float = 0.2
    scale: float = 1.0

    @property
    def factor(self) -> float:
        """What every score is multiplied with."""
        return self.scale if self.kind == "dot" else 1.0


@dataclass
class RowSums:
    """Weighted sums of rows, to which blocks are added one by one; always normalised so far.

    Attributes:
        out: [outputs, columns].
        heads: which heads the columns belong to.
        top: [outputs, heads of the columns] largest score so far; None where there is one block.
        total: as ``top``, the sum of exp(score - top).
        fresh: no block has been added, and what the tensors hold counts for nothing.
    """

    out: torch.Tensor
    heads: HeadColumns
    top: torch.Tensor | None = None
    total: torch.Tensor | None = None
    fresh: bool = True

    @classmethod
    def begin(
        cls, x: torch.Tensor, outputs: int, heads: HeadColumns, *, softmax_blocks: int = 1
    ) -> RowSums:
        """Without any block; the first one must have every row.

        Args:
            x: any tensor on the device of the sources.
            softmax_blocks: how many blocks one softmax goes over.
        """
        out = empty_as(x, outputs, heads.stop - heads.start, dtype=torch.float32)
        return cls.begin_in(out, heads, softmax_blocks=softmax_blocks)

    @classmethod
    def begin_in(cls, out: torch.Tensor, heads: HeadColumns, *, softmax_blocks: int = 1) -> RowSums:
        """Begin as :meth:`begin` does, in a tensor that is there; rows may be apart."""
        sums = cls(out, heads)
        if softmax_blocks > 1:
            state = out.new_empty(2, out.shape[0], heads.count)
            sums.top, sums.total = state
        return sums

    @classmethod
    def resume(cls, out: torch.Tensor, logs: torch.Tensor, heads: HeadColumns) -> RowSums:
        """As other blocks left them.

        Args:
            logs: [outputs, heads of the columns] of :meth:`logs`.
        """
        return cls(out, heads, logs.contiguous(), torch.ones_like(logs), fresh=False)

    def part(self, rows: slice) -> RowSums:
        """Those of some rows, which share memory; all of them are the sums themselves."""
        if rows == slice(None):
            return self
        top, total = (None if of is None else of[rows] for of in (self.top, self.total))
        return RowSums(self.out[rows], self.heads, top, total, self.fresh)

    def logs(self) -> torch.Tensor:
        """[outputs, heads of the columns] log of the sum of exp(score), of several blocks."""
        assert self.top is not None
        assert self.total is not None
        return (self.top + self.total.log()).masked_fill_(self.total == 0, NO_SCORES)


def scaled(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """[n, H*F] values times [n, H] factors of their heads."""
    n, heads = factors.shape
    # torch does not infer -1 where there are no rows.
    return (values.reshape(n, heads, values.shape[1] // heads) * factors[:, :, None]).flatten(1)
