"""Compressed sparse rows from packed edges, and cutting them into blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch


@dataclass(frozen=True)
class Csr:
    """In-edges of consecutive rows: the sources of row i are ``cols[indptr[i]:indptr[i+1]]``.

    Attributes:
        first: node id of row 0.
        indptr: [rows + 1] int64.
        cols: [nnz] node ids, int32 where they fit, ascending within a row when freshly built.
        weights: [nnz] float32 or None.
    """

    first: int
    indptr: torch.Tensor
    cols: torch.Tensor
    weights: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Rows, with edges or without."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Edges, the non-zeros of all rows."""
        return len(self.cols)

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
        )

    def without_weights(self) -> Csr:
        """The same edges, unweighted."""
        return replace(self, weights=None)


def column_bits(nodes: int) -> int:
    """Bits of a packed edge that hold the column."""
    return max(1, (nodes - 1).bit_length())


def id_type(nodes: int) -> torch.dtype:
    """The narrowest index type for node ids."""
    return torch.int32 if nodes < 2**31 else torch.int64


def pack(rows: np.ndarray, cols: np.ndarray, nodes: int) -> np.ndarray:
    """[e] int64 keys, ordered by (row, column)."""
    keys = rows.astype(np.int64)
    keys <<= column_bits(nodes)
    keys |= cols
    return keys


def build_csr(
    keys: np.ndarray,
    weights: np.ndarray | None,
    rows: int,
    nodes: int,
    *,
    first: int,
    remove_duplicates: bool = False,
) -> Csr:
    """Sort packed edges into CSR form; ``keys`` is sorted in place.

    Sorting whole keys (numpy's vectorised sort) orders each row by column, which makes the
    result independent of arrival order; equal edges are ordered by weight. When duplicates
    are removed the heaviest stays.
    """
    if weights is None:
        keys.sort()
    else:
        keys, weights = _sort_weighted(keys, weights)
    if remove_duplicates and len(keys):
        last = np.append(keys[1:] != keys[:-1], True)
        keys = keys[last]
        weights = None if weights is None else weights[last]
    bits = column_bits(nodes)
    indptr = np.searchsorted(keys, np.arange(rows + 1, dtype=np.int64) << bits)
    cols = _low_bits(keys, bits, nodes)
    return Csr(
        first,
        torch.from_numpy(indptr.astype(np.int64, copy=False)),
        torch.from_numpy(cols),
        None if weights is None else torch.from_numpy(weights),
    )


def _low_bits(keys: np.ndarray, bits: int, nodes: int) -> np.ndarray:
    """The columns of packed keys, narrowed chunk by chunk so that no wide copy is made."""
    cols = np.empty(len(keys), np.int32 if id_type(nodes) is torch.int32 else np.int64)
    mask, chunk = (1 << bits) - 1, 1 << 20
    for at in range(0, len(keys), chunk):
        cols[at : at + chunk] = keys[at : at + chunk] & mask
    return cols


def _sort_weighted(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order by key, equal keys by weight."""
    order = np.argsort(keys)
    keys, weights = keys[order], weights[order]
    equal = np.flatnonzero(keys[1:] == keys[:-1])
    if len(equal):
        tied = np.union1d(equal, equal + 1)
        weights[tied] = weights[tied[np.lexsort((weights[tied], keys[tied]))]]
    return keys, weights


def single_loops(csr: Csr, loop_weight: float) -> Csr:
    """The graph with exactly one self-loop per row, placed last in its row.

    In a graph with weights an existing loop keeps its weight (the heaviest when there are
    several) and a new one gets ``loop_weight``.
    """
    ids = torch.arange(csr.rows)
    rows = csr.row_ids()
    loop = csr.cols == rows + csr.first
    kept = ~loop
    counts = torch.bincount(rows[kept], minlength=csr.rows) + 1
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    cols = torch.empty(int(indptr[-1]), dtype=csr.cols.dtype)
    position = torch.arange(int(kept.sum())) + rows[kept]
    cols[position] = csr.cols[kept]
    cols[indptr[1:] - 1] = (ids + csr.first).to(cols.dtype)
    weights = None
    if csr.weights is not None:
        own = torch.full((csr.rows,), float("-inf"))
        own.scatter_reduce_(0, rows[loop], csr.weights[loop], "amax")
        own[own == float("-inf")] = loop_weight
        weights = torch.empty(len(cols))
        weights[position] = csr.weights[kept]
        weights[indptr[1:] - 1] = own
    return Csr(csr.first, indptr, cols, weights)
