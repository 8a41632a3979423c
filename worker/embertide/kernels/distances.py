"""Numbers of sources, added up at the rows that have an edge from them."""

from __future__ import annotations

import torch

from embertide.kernels import native
from embertide.kernels.csr import Csr

_EDGES = 1 << 22
"""Edges that are looked at at a time, without the native kernels."""


def add_at_targets(csr: Csr, values: torch.Tensor, *, weighted: bool) -> torch.Tensor:
    """[rows] float64, the sum over the in-edges of each row of a number of the source.

    Edges from sources whose number is 0 are passed over.

    Args:
        values: [nodes of the source type] float64.
        weighted: the magnitudes of the edges' weights count.
    """
    sums = torch.zeros(csr.rows, dtype=torch.float64)
    some, weights = values != 0, csr.weights if weighted else None
    if native.lib is not None:
        marked = some.view(torch.uint8)
        native.lib.add_at_targets(csr.indptr, csr.cols, weights, marked, values, sums)
        return sums
    for first in range(0, csr.nnz, _EDGES):
        cols = csr.cols[first : first + _EDGES]
        edges = torch.index_select(some, 0, cols).nonzero().squeeze(1)
        added = values[cols[edges].long()]
        if weights is not None:
            added = added * weights[first + edges].abs()
        rows = torch.searchsorted(csr.indptr, first + edges, right=True) - 1
        sums.index_add_(0, rows, added)
    return sums
