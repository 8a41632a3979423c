"""Counts and sums over rows and over what refers to them; results are float32 or int32."""

from __future__ import annotations

import torch

from embertide.kernels import native
from embertide.kernels.block import Block
from embertide.kernels.spilled_csr import AnyBlock

_COMPARED_VALUES = 1 << 16
"""Values that are compared at a time: they stay in the cache."""


def count_values(values: torch.Tensor, counts: torch.Tensor) -> None:
    """Add to ``counts`` [n] int32 how often each of 0..n-1 is among ``values`` [k].

    Raises:
        ValueError: a value outside the counts.
    """
    if native.lib is not None and values.device.type == "cpu":
        native.lib.count_values(values, counts)
        return
    counts += torch.bincount(values, minlength=len(counts))


def count_outside(values: torch.Tensor, first: int, last: int) -> int:
    """How many of ``values`` [k], of any integer type on the CPU, are not within first..last."""
    within = sum(
        int(((some >= first) & (some < last)).sum()) for some in values.split(_COMPARED_VALUES)
    )
    return len(values) - within


def row_lengths(indptr: torch.Tensor) -> torch.Tensor:
    """[rows] float32 non-zeros of each row, from ``indptr`` [rows + 1] int64 on the CPU."""
    if native.lib is None:
        return indptr.diff().float()
    lengths = torch.empty(len(indptr) - 1)
    native.lib.row_lengths(indptr, lengths)
    return lengths


def row_sums(indptr: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """[rows] float32 sum of each row's run of ``values`` [nnz] float32, on the CPU."""
    total = torch.empty(len(indptr) - 1)
    if native.lib is not None:
        native.lib.row_sums(indptr, values, total)
        return total
    sums = torch.zeros(len(total), dtype=torch.float64)
    rows = torch.repeat_interleave(torch.arange(len(total)), indptr.diff())
    return total.copy_(sums.index_add_(0, rows, values.double()))


def add_weights(block: AnyBlock, total: torch.Tensor) -> None:
    """Add to ``total`` [n] float32 the weights of a block's non-zeros, at their sources."""
    # In float64: a hub adds up millions of them.
    if not isinstance(block, Block):
        sums = torch.zeros(len(total), dtype=torch.float64)
        for _, part in block.each():
            # One after the other, as those of a block in memory, so that the bits are the same.
            sums.index_add_(0, part.indices, _weights(part))
    else:
        sums = torch.bincount(block.indices, _weights(block), minlength=len(total))
    total += sums.float()


def _weights(block: Block) -> torch.Tensor:
    assert block.weights is not None
    return block.weights.double()
