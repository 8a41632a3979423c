"""Sums of many rows in torch, whose error does not grow with their number."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

RUN = 16
"""Terms that are summed in float32, one after the other; runs are summed in float64."""
_RUNS = 1 << 13
"""Runs whose sums exist at a time."""


def sum_rows(
    source: Tensor, indices: Tensor, offsets: Tensor, weights: Tensor | None = None
) -> Tensor:
    """[rows, width] float32 sums of w * source[j] over each row's run of indices.

    The order of a row's additions depends on nothing but the row.

    Args:
        source: [s, width] float32, contiguous.
        indices: [e] rows of the source.
        offsets: [rows + 1] first index of each row, of the type of the indices.
        weights: [e] or None.
    """
    lengths = offsets.diff()
    if source.device.type != "cpu":
        return _sum_unseen(source, indices, offsets, lengths, weights)
    if len(lengths) and int(lengths.max()) > RUN:
        return _sum_long(source, indices, offsets, lengths, weights)
    return _sum(source, indices, offsets, weights)


def _sum(source: Tensor, indices: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    return embedding_bag(
        indices,
        source,
        offsets,
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=True,
    )


def _sum_long(
    source: Tensor, indices: Tensor, offsets: Tensor, lengths: Tensor, weights: Tensor | None
) -> Tensor:
    counts = (lengths + (RUN - 1)) // RUN
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    runs = int(ends[-1])
    within = torch.arange(runs, device=ends.device) - ends[:-1].repeat_interleave(counts)
    starts = offsets[:-1].repeat_interleave(counts) + within * RUN
    starts = torch.cat([starts, offsets[-1:]]).to(indices.dtype)
    out = source.new_zeros(len(lengths), source.shape[1], dtype=torch.float64)
    for first in range(0, runs, _RUNS):
        last = min(first + _RUNS, runs)
        some = starts[first : last + 1]
        span = slice(int(some[0]), int(some[-1]))
        of_span = None if weights is None else weights[span]
        sums = _sum(source, indices[span], some - some[0], of_span).double()
        # The rows whose runs these are, the first and the last perhaps in part.
        top, bottom = torch.searchsorted(ends, ends.new_tensor([first, last - 1]), right=True)
        rows = slice(int(top) - 1, int(bottom))
        cuts = ends[rows.start : rows.stop + 1].clamp(first, last) - first
        out[rows] += _sum(sums, torch.arange(last - first, device=cuts.device), cuts, None)
    return out.float()


def _sum_unseen(
    source: Tensor, indices: Tensor, offsets: Tensor, lengths: Tensor, weights: Tensor | None
) -> Tensor:
    """The same on a GPU, without waiting for a value: of as many runs as there may be, the last
    ones are empty."""
    counts = (lengths + (RUN - 1)) // RUN
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    runs = torch.arange(len(indices) // RUN + len(lengths) + 1, device=ends.device)
    rows = torch.searchsorted(ends, runs, right=True) - 1
    starts = offsets[rows] + (runs - ends[rows]) * RUN
    starts = torch.minimum(starts, offsets[-1]).to(indices.dtype)
    sums = _sum(source, indices, starts, weights).double()
    return _sum(sums, torch.arange(len(sums), device=ends.device), ends, None).float()
