"""Compressed sparse rows, and the same with self-loops or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels import native
from embertide.kernels.memory import empty_as

_LAST, _ONE, _MORE = range(3)
"""How each row gets its self-loop, as the kernels number it: the only one, last in the row; the
only one, in its place among the ascending columns; one more, in its place."""


@dataclass(frozen=True)
class Csr:
    """In-edges of consecutive rows: the sources of row i are ``cols[indptr[i]:indptr[i+1]]``.

    Attributes:
        first: node id of row 0.
        indptr: [rows + 1] int64.
        cols: [nnz] node ids, int32 where they fit, ascending within a row when freshly built.
        weights: [nnz] float32 or None.
        features: [nnz, K] float32 of each edge, or None; a partition's CSR has none.
    """

    first: int
    indptr: torch.Tensor
    cols: torch.Tensor
    weights: torch.Tensor | None = None
    features: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Rows, with edges or without."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Edges, the non-zeros of all rows."""
        return len(self.cols)

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.weights is not None

    def parts(self, _wanted: torch.Tensor | None = None) -> Iterator[tuple[slice, Csr]]:
        """All rows at once: a graph in memory is one part, see :class:`SpilledCsr`."""
        yield slice(0, self.rows), self

    def read_rows(self, start: int, stop: int) -> Csr:
        """Rows ``start..stop``, see :meth:`slice`."""
        return self.slice(start, stop)

    def row_ids(self) -> torch.Tensor:
        """[nnz] the row of each non-zero, counted from 0."""
        return torch.repeat_interleave(torch.arange(self.rows), self.indptr.diff())

    def slice(self, start: int, stop: int) -> Csr:
        """Rows ``start..stop``, sharing memory for the non-zeros."""
        low, high = int(self.indptr[start]), int(self.indptr[stop])
        return Csr(
            self.first + start,
            self.indptr[start : stop + 1] - low,
            self.cols[low:high],
            None if self.weights is None else self.weights[low:high],
            None if self.features is None else self.features[low:high],
        )

    def take(self, rows: npt.NDArray[np.int64]) -> Csr:
        """Some rows, from 0, as if they followed each other from node 0 on; a copy."""
        starts, stops = self.indptr.numpy()[rows], self.indptr.numpy()[rows + 1]
        indptr = np.append(0, np.cumsum(stops - starts))
        edges = np.repeat(starts - indptr[:-1], stops - starts) + np.arange(indptr[-1])

        def some(values: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(values.numpy()[edges])

        return Csr(
            0,
            torch.from_numpy(indptr),
            some(self.cols),
            None if self.weights is None else some(self.weights),
            None if self.features is None else some(self.features),
        )

    def without_features(self) -> Csr:
        """The same edges, without features."""
        return self if self.features is None else replace(self, features=None)

    def without_weights(self) -> Csr:
        """The same edges, unweighted."""
        return replace(self, weights=None)

    def without_columns(self) -> Csr:
        """The rows and weights alone, of which nothing will read a column again."""
        return replace(self, cols=self.cols.new_empty(0))

    def rewritten(self, change: Callable[[Csr], Csr]) -> Csr:
        """The graph that ``change`` makes of this one."""
        return change(self)


def column_bits(nodes: int) -> int:
    """Bits of a packed edge that hold the column."""
    return max(1, (nodes - 1).bit_length())


def id_type(nodes: int) -> torch.dtype:
    """The narrowest index type for node ids."""
    return torch.int32 if nodes < 2**31 else torch.int64


def single_loops(csr: Csr, loop_weight: float) -> Csr:
    """The graph with exactly one self-loop per row, placed last in its row.

    In a graph with weights an existing loop keeps its weight (the heaviest when there are
    several) and a new one gets ``loop_weight``.
    """
    return _with_loops(csr, loop_weight, _LAST)


def new_loops(csr: Csr, loop_weight: float) -> Csr:
    """The graph with one self-loop per row, a new one that takes the place of those there."""
    single = single_loops(csr, loop_weight)
    if single.weights is not None:
        single.weights[single.indptr[1:] - 1] = loop_weight
    return single


_ROWS_OF_LOOPS = 1 << 14


def uneven_loops(csr: Csr) -> torch.Tensor:
    """[k] the rows, from 0, with several self-loops of different weight or features, ascending.

    One pass over the columns, without memory that grows with the edges.

    Args:
        csr: equal columns stand together in each row.
    """
    single = torch.empty_like(csr.indptr)
    if csr.weights is None and csr.features is None:
        return single[:0]
    (native.lib or _Plain).count_loops(csr.indptr, csr.cols, csr.first, _LAST, single)
    # With one loop alone, a row is shorter by those that it has beside it.
    several = torch.from_numpy((np.diff(csr.indptr) > np.diff(single)).nonzero()[0])
    parts = [_uneven(csr, some) for some in several.split(_ROWS_OF_LOOPS) if len(some)]
    return torch.cat(parts) if parts else single[:0]


def _uneven(csr: Csr, rows: torch.Tensor) -> torch.Tensor:
    """Those of some rows, each with several self-loops, whose loops have different values."""
    lengths = csr.indptr[rows + 1] - csr.indptr[rows]
    of = torch.repeat_interleave(torch.arange(len(rows)), lengths)
    edges = torch.arange(len(of)) + (csr.indptr[rows] - lengths.cumsum(0) + lengths)[of]
    loop = csr.cols[edges] == rows[of] + csr.first
    of, edges = of[loop], edges[loop]
    # Loops of a row stand together, and each has the values of the one before, or they differ.
    values = [value[edges] for value in (csr.weights, csr.features) if value is not None]
    differs = torch.zeros(max(0, len(of) - 1), dtype=torch.bool)
    for value in values:
        change = value[1:] != value[:-1]
        differs |= change.any(1) if change.dim() > 1 else change
    differs &= of[1:] == of[:-1]
    return rows[of[1:][differs].unique()]


def without_loops(csr: Csr) -> Csr:
    """The graph without its self-loops."""
    single = single_loops(csr, 1.0)
    keep = torch.ones(single.nnz, dtype=torch.bool)
    # Each row's only loop is its last non-zero.
    keep[single.indptr[1:] - 1] = False
    return Csr(
        csr.first,
        single.indptr - torch.arange(len(single.indptr)),
        single.cols[keep],
        None if single.weights is None else single.weights[keep],
    )


def more_loops(csr: Csr, loop_weight: float) -> Csr:
    """The graph with one more self-loop per row, placed last in its row."""
    indptr = csr.indptr + torch.arange(len(csr.indptr))
    stored = torch.ones(csr.nnz + csr.rows, dtype=torch.bool)
    stored[indptr[1:] - 1] = False
    cols = empty_as(csr.cols, len(stored))
    cols.masked_scatter_(stored, csr.cols)
    cols[indptr[1:] - 1] = torch.arange(csr.first, csr.first + csr.rows, dtype=cols.dtype)
    weights = csr.weights
    if weights is not None:
        weights = torch.full((len(stored),), loop_weight, dtype=weights.dtype)
        weights.masked_scatter_(stored, csr.weights)  # type: ignore[arg-type]
    return Csr(csr.first, indptr, cols, weights)


def add_loops(csr: Csr, loop_weight: float, *, more: bool) -> Csr:
    """The graph with a self-loop added in its place in its row; without features.

    Columns ascend in each row, and equal ones by weight, before; columns ascend after.

    Args:
        more: in every row, after the loops that it has; otherwise in rows without one, and of
            several the last stays.
    """
    return _with_loops(csr, loop_weight, _MORE if more else _ONE)


def _with_loops(csr: Csr, loop_weight: float, how: int) -> Csr:
    """Allocates the new graph and nothing else that grows with it."""
    fill = native.lib or _Plain
    indptr = torch.empty_like(csr.indptr)
    fill.count_loops(csr.indptr, csr.cols, csr.first, how, indptr)
    nnz = int(indptr[-1])
    cols = empty_as(csr.cols, nnz)
    weights = None if csr.weights is None else empty_as(csr.weights, nnz)
    fill.fill_loops(
        csr.indptr,
        csr.cols,
        csr.weights,
        csr.first,
        how,
        loop_weight,
        indptr,
        cols,
        weights,
    )
    return Csr(csr.first, indptr, cols, weights)


class _Plain:
    """What the kernels for self-loops do, row by row in torch's terms."""

    @staticmethod
    def _loops(
        indptr: torch.Tensor, cols: torch.Tensor, first: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[nnz] each non-zero's row, and whether it is a self-loop."""
        rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
        return rows, cols == rows + first

    @classmethod
    def count_loops(
        cls, indptr: torch.Tensor, cols: torch.Tensor, first: int, how: int, out: torch.Tensor
    ) -> None:
        rows, loop = cls._loops(indptr, cols, first)
        loops = torch.bincount(rows[loop], minlength=len(indptr) - 1)
        added = 1 if how == _MORE else 1 - loops
        out[0] = 0
        torch.cumsum(indptr.diff() + added, 0, out=out[1:])

    @classmethod
    def fill_loops(
        cls,
        indptr: torch.Tensor,
        cols: torch.Tensor,
        weights: torch.Tensor | None,
        first: int,
        how: int,
        weight: float,
        out_indptr: torch.Tensor,
        out_cols: torch.Tensor,
        out_weights: torch.Tensor | None,
    ) -> None:
        rows, loop = cls._loops(indptr, cols, first)
        count = len(indptr) - 1
        present = torch.zeros(count, dtype=torch.bool).index_fill_(0, rows[loop], True)
        own = torch.arange(count) + first
        # Without a new loop of its own, a row keeps the last of those it has.
        kept, new = torch.ones_like(loop), torch.ones(count, dtype=torch.bool)
        if how != _MORE:
            kept, new = ~loop, ~present
        if how == _ONE:
            kept |= last_of_loops(rows, loop)
        place = out_indptr[1:] - 1
        if how != _LAST:
            # A new loop goes before the first larger column.
            larger = torch.bincount(rows[cols > rows + first], minlength=count)
            place, own = (place - larger)[new], own[new]
        free = torch.ones(len(out_cols), dtype=torch.bool).index_fill_(0, place, False)
        position = free.nonzero().squeeze(1)
        out_cols[position] = cols[kept]
        out_cols[place] = own.to(cols.dtype)
        if weights is None or out_weights is None:
            return
        out_weights[position] = weights[kept]
        out_weights[place] = weight
        if how == _LAST:
            heaviest = torch.full((count,), float("-inf"))
            heaviest.scatter_reduce_(0, rows[loop], weights[loop], "amax")
            out_weights[place[present]] = heaviest[present]


def last_of_loops(rows: torch.Tensor, loop: torch.Tensor) -> torch.Tensor:
    """[nnz] whether a non-zero is the last of its row's self-loops, which stand together.

    Args:
        rows: [nnz] the row of each non-zero.
        loop: [nnz] whether it is a self-loop.
    """
    last = loop.clone()
    last[:-1] &= ~(loop[1:] & (rows[1:] == rows[:-1]))
    return last
