"""Memory for messages that is used again: fresh pages cost more than what is written to them."""

from __future__ import annotations

import torch


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
            return self._like.new_empty(values)
        at = number % len(self._held)
        if self._held[at].numel() < values:
            self._held[at] = self._like.new_empty(values)
        return self._held[at][:values]
