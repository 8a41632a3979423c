"""Packed edges that are all there already, as a CSR."""

from __future__ import annotations

import numpy as np

from embertide.kernels.csr import Csr
from embertide.kernels.edge_sort import (
    EdgeSorter,
    Keys,
    Weights,
    bucket_count,
    bucket_shift,
    column_bits,
    count_edges,
)


def build_csr(
    keys: Keys, weights: Weights, rows: int, nodes: int, *, first: int, remove_duplicates: bool
) -> Csr:
    """The CSR of packed edges that are all there already; see :class:`EdgeSorter`."""
    shift = bucket_shift(rows)
    counts = np.zeros((1, bucket_count(rows)), np.int64)
    bounds = np.array([0, rows], np.int64)
    count_edges(keys >> column_bits(nodes), bounds, shift, counts)
    sorter = EdgeSorter(
        counts[0], shift, first=first, rows=rows, nodes=nodes, weighted=weights is not None
    )
    sorter.add_keys(keys, weights)
    return sorter.finish(remove_duplicates=remove_duplicates)
