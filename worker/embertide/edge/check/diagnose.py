"""The first layer where a description and the user's own forward can differ.

A ``model.yaml`` that fits the weights can still be another model: a forgotten activation, a wrong
``aggr``, a link on the wrong side of a ReLU. Names and shapes do not show that; vectors that the
user's own forward gave do. They are of the last layer only, so they do not show directly where the
difference begins. But such mistakes are small changes (`alternatives`), and there are few: each is
tried, and those that make the vectors agree are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from embertide.edge.check.alternatives import Change, alternatives, everywhere
from embertide.edge.check.data_changes import DataChange
from embertide.errors import ModelError
from embertide.models.description import Description
from embertide.models.read import ModelFiles
from embertide.program.steps import Program

Compute = Callable[[Program], torch.Tensor]
"""A program's vectors [n, width] of the rows that are compared."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A change of the description or of the manifest, and what it leaves.

    Attributes:
        error: the largest difference, as a share of the largest expected magnitude; infinite
            where the vectors have another width.
    """

    change: Change | DataChange
    error: float

    def __str__(self) -> str:
        return str(self.change)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the program is from the expected vectors, and what makes it agree.

    Attributes:
        error: the largest difference, as a share of the largest expected magnitude; infinite
            where the vectors have another width.
        row: the place among the expected rows where it is.
        fixes: changes that make all vectors agree, in the order of the layers or of the manifest.
        nearest: the change that leaves least, where none is enough; None where none helps.
        of_data: changes are of the manifest, not of the model's description.
        tried: what the changes that were computed are about; only of the manifest's.
        untrained: norms of the model whose statistics were never loaded or trained.
    """

    error: float
    row: int
    fixes: tuple[Tried, ...]
    nearest: Tried | None
    of_data: bool = False
    tried: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()

    @property
    def layer(self) -> int | None:
        """The first layer that can differ; None where no change explains it."""
        changes = (fix.change for fix in self.fixes)
        layers = (change.layers[0] for change in changes if isinstance(change, Change))
        return min(layers, default=None)


def first_difference(
    files: ModelFiles,
    compute: Compute,
    expected: torch.Tensor,
    *,
    tolerance: float = 1e-4,
    key: str = "",
) -> Difference | None:
    """Compare a model with what the user's own forward gave; None where they agree.

    Computes the model once, and where it differs once more for each change that is tried, some 20
    for each layer.

    Args:
        expected: [n, D'] the vectors of the rows that ``compute`` gives.
        tolerance: largest error that counts as agreement, as a share of the largest magnitude.
        key: of the result that has these vectors.

    Raises:
        ModelError: the weights do not fit the description.
    """
    model = _Comparison(
        files=files, compute=compute, expected=expected.double(), key=key, seen=set()
    )
    errors = model.errors(files.description)
    assert errors is not None
    worst = float(errors.max())
    if worst <= tolerance:
        return None
    tried = list(model.tried(alternatives(files)))
    if not any(change.error <= tolerance for change in tried):
        tried += model.tried(everywhere(files))
    fixes = tuple(change for change in tried if change.error <= tolerance)
    nearest = min(tried, key=lambda change: change.error, default=None)
    if fixes or (nearest is not None and nearest.error >= worst):
        nearest = None
    return Difference(error=worst, row=int(errors.argmax()), fixes=fixes, nearest=nearest)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """A model compared with a reference; `seen` has the identities of programs computed so far."""

    files: ModelFiles
    compute: Compute
    expected: torch.Tensor
    key: str
    seen: set[Any]

    def errors(self, description: Description) -> torch.Tensor | None:
        """[n] each row's largest difference, as a share of the largest expected magnitude.

        None where the same program was computed before.
        """
        program = self.files.program(description)
        key = _identity(program)
        if key in self.seen:
            return None
        self.seen.add(key)
        if program.widths[program.results[self.key]] != self.expected.shape[1]:
            return torch.full((len(self.expected),), torch.inf, dtype=torch.float64)
        vectors = self.compute(program).double()
        errors = (vectors - self.expected).abs().amax(1) / self.expected.abs().max()
        return errors.nan_to_num(nan=torch.inf)

    def tried(self, changes: Iterable[tuple[Change, Description]]) -> Iterator[Tried]:
        """Every change that fits the weights, with what it leaves of the difference."""
        for change, description in changes:
            try:
                errors = self.errors(description)
            except ModelError:
                continue  # The weights rule it out.
            if errors is not None:
                yield Tried(change=change, error=float(errors.max()))


def _identity(program: Program) -> tuple[Any, ...]:
    """Equal for descriptions that mean the same, such as PyG's aggr ``add`` and ``sum``."""
    params = sorted((name, float(value.double().sum())) for name, value in program.params.items())
    return program.steps, tuple(program.results.items()), tuple(params)
