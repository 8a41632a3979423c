"""Memory for messages that is used again: fresh pages cost more than what is written to them."""

from __future__ import annotations

import torch

from embertide.kernels.memory import empty_as


class Buffers:
    """``count`` flat buffers that are used in turn; with a count of 0, a new one each time.

    Args:
        like: has their dtype and device.
    """

    def __init__(self, count: int, like: torch.Tensor) -> None:
        self._held = [like.new_empty(0)] * count
        self._like = like

    def take(self, number: int, values: int) -> torch.Tensor:
        """[values] of buffer ``number`` modulo their count, which grows where it is too small."""
        if not self._held:
            return empty_as(self._like, values)
        at = number % len(self._held)
        if self._held[at].numel() < values:
            self._held[at] = empty_as(self._like, values)
        return self._held[at][:values]
