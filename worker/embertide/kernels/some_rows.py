"""Some rows of a graph: where their edges come from, and the rows alone."""

from __future__ import annotations

import torch

from embertide.kernels import native
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.memory import empty_as
from embertide.kernels.spilled_csr import AnyCsr

_EDGES = 1 << 22
"""Edges that are looked at at a time, without the native kernels."""


def sources_of(csr: AnyCsr, wanted: torch.Tensor, nodes: int) -> torch.Tensor:
    """[nodes] bool: the sources of the edges of some rows; takes time for these edges alone.

    Args:
        wanted: [rows] bool.
        nodes: how many of the source type there are.
    """
    marked = torch.zeros(nodes, dtype=torch.bool)
    for span, part in csr.parts(wanted):
        rows = wanted[span].nonzero().squeeze(1)
        if native.lib is not None:
            native.lib.mark_sources(part.indptr, part.cols, rows, marked.view(torch.uint8))
        else:
            _mark_sources(part, rows, marked)
    return marked


def _mark_sources(csr: Csr, rows: torch.Tensor, marked: torch.Tensor) -> None:
    first, lengths = 0, csr.indptr[rows + 1] - csr.indptr[rows]
    ends = lengths.cumsum(0)
    # What to add to the number of an edge among those of the rows, for its place among all.
    shifts = csr.indptr[rows + 1] - ends
    while first < len(rows):
        start = int(ends[first] - lengths[first])
        last = max(first + 1, int(torch.searchsorted(ends, start + _EDGES, right=True)))
        some = slice(first, last)
        edges = torch.arange(start, int(ends[last - 1]))
        edges += torch.repeat_interleave(shifts[some], lengths[some])
        marked[csr.cols[edges].long()] = True
        first = last


def targets_of(csr: AnyCsr, sources: torch.Tensor) -> torch.Tensor:
    """[rows] bool: the rows that have an edge from one of some sources.

    Args:
        sources: [nodes of the source type] bool.
    """
    marked = torch.zeros(csr.rows, dtype=torch.bool)
    if not bool(sources.any()):
        return marked
    for span, part in csr.parts():
        if native.lib is not None:
            marks = marked[span].view(torch.uint8)
            native.lib.mark_targets(part.indptr, part.cols, sources.view(torch.uint8), marks)
        else:
            _mark_targets(part, sources, marked[span])
    return marked


def _mark_targets(csr: Csr, sources: torch.Tensor, marked: torch.Tensor) -> None:
    for first in range(0, csr.nnz, _EDGES):
        last = min(first + _EDGES, csr.nnz)
        hits = torch.zeros(last - first + 1, dtype=torch.int32)
        picked = torch.index_select(sources, 0, csr.cols[first:last])
        torch.cumsum(picked, 0, dtype=torch.int32, out=hits[1:])
        # Rows with edges among these, whose hits are the difference of the sums at their ends.
        ends = torch.tensor([first, last - 1])
        top, bottom = torch.searchsorted(csr.indptr, ends, right=True).tolist()
        rows = slice(top - 1, bottom)
        sums = hits[csr.indptr[top - 1 : bottom + 1].clamp(first, last) - first]
        marked[rows] |= sums[1:] > sums[:-1]


def count_edges(indptr: torch.Tensor, wanted: torch.Tensor) -> int:
    """The edges of some rows; takes time for these alone, but for a look at which they are.

    Args:
        indptr: [rows + 1] int64.
        wanted: [rows] bool.
    """
    if bool(wanted.all()):
        return int(indptr[-1] - indptr[0])
    rows = wanted.nonzero().squeeze(1)
    return int((indptr[rows + 1] - indptr[rows]).sum())


def edges_of(
    indptr: torch.Tensor, rows: torch.Tensor, wanted: torch.Tensor | None = None
) -> torch.Tensor:
    """[k] int64: the edges of some rows, by their places among those of all rows.

    Args:
        indptr: [all rows + 1] int64.
        rows: [n] int64, in any order.
        wanted: [n] bool, which of these rows have their edges; None: all.
    """
    starts, lengths = indptr[rows], _lengths(indptr, rows, wanted)
    shifts = starts - (lengths.cumsum(0) - lengths)
    return torch.arange(int(lengths.sum())) + torch.repeat_interleave(shifts, lengths)


def take_rows(
    csr: AnyCsr, rows: torch.Tensor, wanted: torch.Tensor, numbers: torch.Tensor, first: int
) -> Csr:
    """Some rows alone, without features: row k is ``rows[k]``, without edges unless wanted.

    Args:
        rows: [n] int64, ascending.
        wanted: [n] bool, which of these rows have their edges.
        numbers: [N + 1] int64, the new number of each node that is a source, ascending; the last
            is how many there are.
        first: the new number of row 0.
    """
    indptr = torch.zeros(len(rows) + 1, dtype=torch.int64)
    torch.cumsum(_lengths(csr.indptr, rows, wanted), 0, out=indptr[1:])
    count, of_type = int(indptr[-1]), id_type(int(numbers[-1]))
    cols = empty_as(torch.empty(0, dtype=of_type), count)
    weights = empty_as(torch.empty(0), count) if csr.weighted else None
    every = torch.zeros(csr.rows, dtype=torch.bool)
    every[rows[wanted]] = True
    for span, part in csr.parts(every):
        low, high = torch.searchsorted(rows, torch.tensor([span.start, span.stop])).tolist()
        ends = indptr[low : high + 1]
        some = slice(int(ends[0]), int(ends[-1]))
        own, own_cols = rows[low:high] - span.start, cols[some]
        own_weights = None if weights is None else weights[some]
        if native.lib is None:
            edges = edges_of(part.indptr, own, wanted[low:high])
            own_cols.copy_(numbers[part.cols[edges].long()])
            if own_weights is not None and part.weights is not None:
                own_weights.copy_(part.weights[edges])
            continue
        native.lib.take_rows(
            part.indptr,
            part.cols,
            part.weights,
            own,
            numbers,
            ends - ends[0],
            own_cols,
            own_weights,
        )
    return Csr(first, indptr, cols, weights)


def _lengths(indptr: torch.Tensor, rows: torch.Tensor, wanted: torch.Tensor | None) -> torch.Tensor:
    """[n] int64 edges of some rows, none unless wanted."""
    lengths = indptr[rows + 1] - indptr[rows]
    return lengths if wanted is None else lengths * wanted
