"""Numbers that edges carry: sorted with their edges, filled in for self-loops.

A row of K float32 for every edge, in the order of a CSR's non-zeros. Sizes are bounded by a bucket
of rows, or by the edges of one worker's sub-range.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels.csr import Csr, last_of_loops

Features = npt.NDArray[np.float32] | None
LoopFill = Literal["mean", "add", "min", "max", "mul"] | float
"""Features of a new self-loop: a number for all, or what the in-edges of its node come to."""

_REDUCTIONS = {"mean": "mean", "add": "sum", "min": "amin", "max": "amax", "mul": "prod"}


def sort_buckets(
    keys: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
    features: npt.NDArray[np.float32],
    starts: npt.NDArray[np.int64],
) -> None:
    """Order edges by key, then weight, then features, each bucket by itself and in place.

    Args:
        keys: [e], of which every one in a bucket is below all of the next.
        weights: [e] or None.
        features: [e, K].
        starts: [buckets + 1] first edge of each bucket, and one past the last.
    """
    for start, stop in pairwise(starts.tolist()):
        span = slice(start, stop)
        order = _order(keys[span], None if weights is None else weights[span], features[span])
        for values in (keys, weights, features):
            if values is not None:
                values[span] = values[span][order]


def _order(
    keys: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32] | None,
    features: npt.NDArray[np.float32],
) -> npt.NDArray[np.intp]:
    """Few edges have the key of another: only these are compared further."""
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied):
        some = order[tied]
        by = [*features[some].T[::-1], keys[some]]
        if weights is not None:
            by.insert(-1, weights[some])
        order[tied] = some[np.lexsort(by)]
    return order


def last_of_each(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """[e] whether an edge is the last with its key, of keys in order."""
    return np.append(keys[1:] != keys[:-1], np.ones(min(1, len(keys)), np.bool_))


def added_loop_features(
    before: Csr, after: Csr, features: torch.Tensor, *, more: bool
) -> torch.Tensor:
    """Features of `add_loops` of a graph: 1 in each where it added a self-loop.

    Args:
        before: the graph that ``features`` [nnz, K] are of.
        more: as `add_loops` was asked for.
    """
    rows, loop = after.row_ids(), _loops(after)
    if more:
        new, kept = last_of_loops(rows, loop), features
    else:
        had = torch.zeros(before.rows, dtype=torch.bool)
        rows_before, loop_before = before.row_ids(), _loops(before)
        had[rows_before[loop_before]] = True
        new = loop & ~had[rows]
        kept = features[~loop_before | last_of_loops(rows_before, loop_before)]
    out = features.new_ones(after.nnz, features.shape[1])
    out[~new] = kept
    return out


def without_loop_features(csr: Csr, features: torch.Tensor) -> torch.Tensor:
    """Features of `without_loops` of a graph."""
    return features[~_loops(csr)]


def single_loop_features(csr: Csr, features: torch.Tensor, fill: LoopFill) -> torch.Tensor:
    """Features of `single_loops` of a graph: existing loops lose theirs, all get the fill.

    Where other in-edges are combined, a row without any gets 0.
    """
    other = ~_loops(csr)
    return _with_last(csr, csr.row_ids()[other], features[other], fill)


def more_loop_features(csr: Csr, features: torch.Tensor, fill: LoopFill) -> torch.Tensor:
    """Features of `more_loops` of a graph: the new ones get the fill, of all other in-edges."""
    return _with_last(csr, csr.row_ids(), features, fill)


def _with_last(csr: Csr, rows: torch.Tensor, kept: torch.Tensor, fill: LoopFill) -> torch.Tensor:
    """Those of edges [e] that stay, in their rows, and after each row's the fill."""
    ends = (torch.bincount(rows, minlength=csr.rows) + 1).cumsum(0)
    out = kept.new_empty(len(kept) + csr.rows, kept.shape[1])
    out[torch.arange(len(rows)) + rows] = kept
    for column in range(kept.shape[1]):
        out[ends - 1, column] = _filled(rows, kept[:, column], csr.rows, fill)
    return out


def _filled(rows: torch.Tensor, values: torch.Tensor, count: int, fill: LoopFill) -> torch.Tensor:
    """[count] the fill of each row, of its edges' values [e]."""
    if not isinstance(fill, str):
        return values.new_full((count,), float(fill))
    # In float64: a hub adds up millions of them.
    empty = values.new_zeros(count, dtype=torch.float64)
    how = _REDUCTIONS[fill]
    return empty.scatter_reduce(0, rows, values.double(), how, include_self=False).float()


def _loops(csr: Csr) -> torch.Tensor:
    """[nnz] whether a non-zero is a self-loop."""
    return csr.cols == csr.row_ids() + csr.first


def place_by(
    groups: npt.NDArray[np.integer[Any]], cursors: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """[e] where edges go that are put group by group, in their order; ``cursors`` advance.

    Args:
        groups: [e] the group of each edge.
        cursors: [groups] next free place of each.
    """
    # Numbers of 16 bits are sorted by their digits, in one pass over memory.
    narrow = np.uint16 if len(cursors) <= 1 << 16 else np.int64
    order = np.argsort(groups.astype(narrow), kind="stable")
    counts = np.bincount(groups, minlength=len(cursors))
    places = np.empty(len(groups), np.int64)
    first = np.repeat(cursors - np.cumsum(counts) + counts, counts)
    places[order] = first + np.arange(len(groups))
    cursors += counts
    return places
