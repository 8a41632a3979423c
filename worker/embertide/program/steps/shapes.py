"""The shapes that steps check and derive, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.errors import ModelError


@dataclass(frozen=True)
class Shapes:
    """The widths of the tensors before a step, and the parameters."""

    widths: dict[str, int]
    params: dict[str, torch.Tensor]

    def width(self, name: str) -> int:
        """Columns of a tensor.

        Raises:
            ModelError: no earlier step makes it.
        """
        if name not in self.widths:
            known = ", ".join(self.widths)
            raise ModelError(f"reads tensor {name!r}, which no step before it makes (of {known})")
        return self.widths[name]

    def same(self, names: list[str]) -> int:
        """The columns that several tensors have in common.

        Raises:
            ModelError: they differ, or there is none.
        """
        widths = {name: self.width(name) for name in names}
        if len(set(widths.values())) != 1:
            listed = ", ".join(f"{name!r} has {width}" for name, width in widths.items())
            raise ModelError(f"needs tensors of one width, but {listed or 'reads none'}")
        return widths[names[0]]

    def per_head(self, name: str, heads: int) -> int:
        """Columns of one head of a tensor.

        Raises:
            ModelError: they do not divide.
        """
        width = self.width(name)
        if heads < 1 or width % heads:
            raise ModelError(f"{name!r} has {width} columns, which {heads} heads do not divide")
        return width // heads

    def heads_of(self, names: list[str], heads: int) -> None:
        """Tensors with one column per head.

        Raises:
            ModelError: one has more or fewer.
        """
        for name in names:
            if self.width(name) != heads:
                width = self.width(name)
                raise ModelError(
                    f"{name!r} must have a column for each of {heads} heads, not {width}"
                )

    def param(self, name: str) -> torch.Tensor:
        """A parameter.

        Raises:
            ModelError: the weights have none of that name.
        """
        if name not in self.params:
            raise ModelError(f"reads parameter {name!r}, which the weights do not have")
        return self.params[name]

    def matrix(self, name: str, columns: int) -> int:
        """Rows D' of a weight [D', columns].

        Raises:
            ModelError: it has another shape.
        """
        shape = tuple(self.param(name).shape)
        if len(shape) != 2 or shape[1] != columns or not shape[0]:
            raise ModelError(f"{name!r} has shape {list(shape)}, but must be [D', {columns}]")
        return shape[0]

    def values(self, name: str | None, *counts: int) -> None:
        """A parameter, if named, of one of these numbers of values.

        Raises:
            ModelError: it has another number.
        """
        if name is None:
            return
        param = self.param(name)
        if param.numel() not in counts:
            must = " or ".join(map(str, counts))
            shape = list(param.shape)
            raise ModelError(f"{name!r} has shape {shape}, but must have {must} values")
