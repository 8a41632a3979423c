"""One example of a library: how it is made, how it is exported, and what its page says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

WIDTH, OUT, EDGE_FEATURES = 5, 4, 3


@dataclass(frozen=True)
class Example:
    """A model of a library's example.

    Attributes:
        library: whose example it is.
        path: of the example in the library's repository.
        make: the module, with small widths.
        method: the method that gives embeddings; "" for ``forward``.
        options: of ``embertide.export``.
        line: what has to be written beside the example's own code; "" for nothing.
        refused: what the refusal says; "" for an example that is exported.
    """

    library: Literal["PyG", "DGL"]
    path: str
    make: Callable[[], nn.Module]
    method: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    line: str = ""
    refused: str = ""

    @property
    def name(self) -> str:
        """The example's name, which is one among all."""
        return f"{self.library} {self.path}"
