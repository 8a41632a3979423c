"""What sums over a block's rows are multiplied by, and what happens to every finished row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from embertide.kernels.block import Chunk
from embertide.kernels.nodewise import activate_

ACTIVATIONS = ("none", "relu", "leaky_relu", "elu")
"""Those that kernels apply, which know them by their place here."""


@dataclass(frozen=True)
class Factors:
    """What multiplies the rows that are reduced.

    Attributes:
        weights: [nnz] one for each non-zero, in the block's order, or None.
        source: [s] one for each source row, or None.
        target: [outputs] one for each output row, applied to its result, or None.
    """

    weights: torch.Tensor | None = None
    source: torch.Tensor | None = None
    target: torch.Tensor | None = None

    def of(self, chunk: Chunk) -> torch.Tensor | None:
        """[nnz] of a chunk: weights times source factors, or None for ones."""
        weights = None if self.weights is None else self.weights[chunk.span]
        if self.source is None:
            return weights
        factor = self.source.index_select(0, chunk.indices)
        return factor if weights is None else factor.mul_(weights)

    def of_rows(self, rows: torch.Tensor, edges: torch.Tensor | None) -> Factors:
        """Those of some rows, and of their non-zeros [k] int64; None: of all."""
        target = None if self.target is None else self.target[rows]
        weights = self.weights
        if weights is not None and edges is not None:
            weights = weights[edges]
        return Factors(weights, self.source, target)

    def alone(self, chunk: Chunk) -> Factors:
        """Those of a chunk that is a whole block."""
        weights = None if self.weights is None else self.weights[chunk.span]
        target = None if self.target is None else self.target[chunk.rows]
        return Factors(weights, self.source, target)


@dataclass(frozen=True)
class Epilogue:
    """What happens to every finished row: ``scale * activation(row + share * added + bias)``.

    Attributes:
        bias: [width] or None.
        activation: one that :func:`is_fusible` accepts.
        slope: leaky_relu's negative slope, or elu's alpha.
        scale: [outputs] one factor for each row, or None.
        added: [outputs, width] or None; to sums of rows only, not to products.
        share: the factor of what is added.
        wanted: [k] int64, ascending, the rows of products that are read; others may stay as they
            are. None: all.
    """

    bias: torch.Tensor | None = None
    activation: str = "none"
    slope: float = 0.0
    scale: torch.Tensor | None = None
    added: torch.Tensor | None = None
    share: float = 1.0
    wanted: torch.Tensor | None = None

    def apply_(self, rows: torch.Tensor) -> torch.Tensor:
        """The epilogue on its own, in place."""
        if self.added is not None:
            rows.add_(self.added, alpha=self.share)
        if self.bias is not None:
            rows += self.bias
        if self.activation != "none":
            activate_(rows, self.activation, self.slope)
        return rows if self.scale is None else rows.mul_(self.scale.unsqueeze(1))

    def part(self, which: torch.Tensor | slice) -> Epilogue:
        """The epilogue of some of the rows, all of them wanted."""
        scale = None if self.scale is None else self.scale[which]
        added = None if self.added is None else self.added[which]
        return replace(self, scale=scale, added=added, wanted=None)


NOTHING = Epilogue()
"""The epilogue that leaves rows as they are."""


def is_fusible(activation: str) -> bool:
    """Whether an epilogue can apply it."""
    return activation in ACTIVATIONS
