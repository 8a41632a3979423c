"""What an example of docs/model.md is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Example:
    """A model as a training script has it, and its model.yaml.

    Attributes:
        weighted: its forward takes edge weights.
    """

    make: Callable[[], nn.Module]
    yaml: str
    weighted: bool = False
