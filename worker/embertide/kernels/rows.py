"""Rows of float values by number: what exchange buffers are filled from and emptied to, and rows of
tensors that may be on disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from embertide.kernels import native

_PIECE_VALUES, _READERS = 1 << 14, 16
"""Values that a thread reads at a time, too few for torch to take more threads; and threads: a row
on disk waits until its page was read."""


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


def pick_rows(data: torch.Tensor, rows: torch.Tensor, width: int) -> torch.Tensor:
    """[k, width] some rows of a tensor that may be mapped from the disk: many are waited for at a
    time.

    Args:
        data: [n, width], or [n, panels, columns], of which the last panel may be wider than needed.
    """
    count = max(1, _PIECE_VALUES // max(1, data[:1].numel()))
    if data.device.type != "cpu" or len(rows) <= count:
        return data[rows.to(data.device)].flatten(1)[:, :width]
    out = torch.empty(len(rows), *data.shape[1:], dtype=data.dtype)
    pieces = zip(rows.split(count), out.split(count), strict=True)
    with ThreadPoolExecutor(_READERS, "fetch") as pool:
        for read in [pool.submit(_fill, data, *piece) for piece in pieces]:
            read.result()
    return out.flatten(1)[:, :width]


def _fill(data: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
    # The mode is a thread's own.
    with torch.inference_mode():
        torch.index_select(data, 0, rows, out=out)
