"""Which kernels run in this process."""

from __future__ import annotations

import torch

from embertide.kernels import gpu, native


def is_compiled() -> bool:
    """Whether the CPU's kernels are the compiled ones, which can also map memory of peers."""
    return native.lib is not None


def describe(device: torch.device) -> str:
    """One line for reports: what computes on the device, and on the CPU beside it."""
    if device.type == "cpu":
        return native.describe()
    return f"{gpu.describe(device)}, {native.describe()} beside it"


def instruction_set() -> str:
    """What the compiled kernels are for, such as avx512; "" without them."""
    return "" if native.lib is None else str(native.lib.isa())
