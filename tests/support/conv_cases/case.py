"""A convolution of a library with the layer that describes it: what the tables of cases hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

EXACT, FOLDED = 1e-9, 1e-6
"""Tolerances; what is folded into a parameter is stored in float32."""

WIDTH = "input_width: 5\n"
"""Of a module without parameters that tell it."""

Make = Callable[[Any], nn.Module]
"""Takes the library's ``nn``."""
Forward = Callable[..., Tensor]


def plain(conv: Any, *arguments: Tensor, **weights: Tensor) -> Tensor:
    """The module's forward, heads side by side."""
    return conv(*arguments, **weights).flatten(1)


@dataclass(frozen=True)
class ConvCase:
    """One module as a training script makes it, and the layer that describes it.

    Attributes:
        make: the module alone.
        layer: the layer in ``model.yaml``, without braces; empty where none describes the module.
        weighted: stored edge weights are passed to the module.
        features: columns of the edges' features that are passed to the module; 0 for none.
        forward: of (conv, x, edges) for PyG, of (conv, graph, x) for DGL, then features of edges.
        more: further lines of ``model.yaml``.
        weights_unread: the graph has edge weights that the module is not given.
        on_grids: it runs on every grid, too; False where others have the same kinds of steps.
        exported: `embertide export` takes it, and writes it as one layer.
    """

    make: Make
    layer: str = ""
    weighted: bool = False
    features: int = 0
    forward: Forward = plain
    more: str = ""
    tolerance: float = EXACT
    weights_unread: bool = False
    on_grids: bool = False
    exported: bool = True

    @property
    def conv(self) -> str:
        """The word after ``conv``."""
        return self.layer.removeprefix("conv: ").split(",")[0]

    def module(self, library: Any) -> nn.ModuleDict:
        """The module under the name ``conv``."""
        return nn.ModuleDict({"conv": self.make(library)})

    def text(self, library: str) -> str:
        """The whole ``model.yaml``."""
        return f"library: {library}\n{self.more}layers: [{{{self.layer}}}]"


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
