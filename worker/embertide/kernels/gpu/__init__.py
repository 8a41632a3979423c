"""Kernels of a GPU, in Triton.

A program reduces one row: its sources' columns are gathered side by side, several rows at a time,
and what becomes of the sum is done while it is in registers. A long row is cut into pieces of equal
size, whose results are reduced like sources: so no hub keeps one program busy while all others are
done, and the same sums come out every time.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch


@cache
def usable(device: torch.device) -> bool:
    """Whether Triton has kernels for a device; if it should and hasn't, a warning says why."""
    if device.type != "cuda":
        return False
    try:
        from embertide.kernels.gpu import spmm

        spmm.try_on(device)
    except Exception as error:  # Whatever Triton, its compilers or the driver are missing.
        reason = str(error).strip().split("\n")[0]
        warnings.warn(
            f"torch computes on the GPU, since Triton cannot ({type(error).__name__}: {reason}):"
            " results are the same, and come later",
            stacklevel=2,
        )
        return False
    return True


def describe(device: torch.device) -> str:
    """One line for reports: what computes on a device that is a GPU."""
    if not usable(device):
        return "torch on the GPU (Triton does not run; a warning has the reason)"
    import triton

    return f"Triton {triton.__version__} on the GPU"
