"""What an example of docs/model.md is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

EXACT, FOLDED = 1e-9, 1e-6


@dataclass(frozen=True)
class Example:
    """A model as a training script has it, and its model.yaml.

    Attributes:
        weighted: its forward takes edge weights.
        features: of each edge, which its forward takes; 0 for none.
        tolerance: of the comparison; a folded batch norm is stored in float32.
        on_grids: it runs on every grid, too; False where others have the same kinds of steps.
    """

    make: Callable[[], nn.Module]
    yaml: str
    weighted: bool = False
    features: int = 0
    tolerance: float = EXACT
    on_grids: bool = True
