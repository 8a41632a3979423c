"""Rows of float values by number: what exchange buffers are filled from and emptied to."""

from __future__ import annotations

import torch

from embertide.kernels import native


def gather_rows(
    source: torch.Tensor,
    index: torch.Tensor,
    *,
    scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """out[i] = scale[index[i]] * source[index[i]].

    Args:
        source: [n, width] float32 or bfloat16; columns of a wider tensor will do.
        index: [k] int32 or int64.
        scale: [n] float32 factor of each row, or None.
        out: [k, width] of the type of ``source``, to write to; a new tensor where None.

    Raises:
        ValueError: an index or a shape does not fit (IndexError where torch does the work).
    """
    if out is None:
        out = source.new_empty(len(index), source.shape[1])
    if native.lib is not None and source.device.type == "cpu":
        native.lib.gather_rows(out, source, index.long(), scale)
        return out
    torch.index_select(source, 0, index, out=out)
    return out if scale is None else out.mul_(scale.index_select(0, index).unsqueeze(1))


def scatter_rows(out: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> None:
    """out[index] = values; no row may occur twice.

    Args:
        out: [n, width] float32 or bfloat16; columns of a wider tensor will do.
        index: [k] int32 or int64.
        values: [k, width] of the type of ``out``.

    Raises:
        ValueError: an index or a shape does not fit (IndexError where torch does the work).
    """
    if native.lib is not None and out.device.type == "cpu":
        native.lib.scatter_rows(out, index.long(), values)
    else:
        out.index_copy_(0, index.long(), values)
