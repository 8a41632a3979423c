"""How shapes are written in messages."""

from __future__ import annotations

import torch


def shape_of(tensor: torch.Tensor) -> str:
    """A shape as people write it: ``[16, 8]``."""
    return str(list(tensor.shape))
