"""Where a description and the user's own forward part: the first layer that can differ.

A ``model.yaml`` that fits the weights can still say another model: a forgotten activation, a wrong
``aggr``, a link on the wrong side of a ReLU. Names and shapes do not show that; vectors that the
user's own forward gave do. They are of the last layer only, so nothing tells directly where the
difference begins. But such mistakes are small changes (`alternatives`), and there are few: each is
tried, and those that make the vectors agree are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from embertide.check.alternatives import Change, alternatives, everywhere
from embertide.check.data_changes import DataChange
from embertide.errors import ModelError
from embertide.models.description import Description
from embertide.models.read import ModelFiles
from embertide.steps import Program

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
    """How far the program is from the expected vectors, and what mends it.

    Attributes:
        error: the largest difference, as a share of the largest expected magnitude; infinite
            where the vectors have another width.
        row: the place among the expected rows where it is.
        mends: changes that make all vectors agree, in the order of the layers or of the manifest.
        nearest: the change that leaves least, where none mends; None where none helps.
        of_data: changes are of the manifest, not of the model's description.
    """

    error: float
    row: int
    mends: tuple[Tried, ...]
    nearest: Tried | None
    of_data: bool = False

    @property
    def layer(self) -> int | None:
        """The first layer that can differ; None where no change explains it."""
        changes = (one.change for one in self.mends)
        return min((one.layers[0] for one in changes if isinstance(one, Change)), default=None)


def first_difference(
    files: ModelFiles,
    compute: Compute,
    expected: torch.Tensor,
    *,
    tolerance: float = 1e-4,
    key: str = "",
) -> Difference | None:
    """Hold a model against what the user's own forward gave; None where they agree.

    Computes the model once, and where it differs once more for each change that is tried, some 20
    for each layer.

    Args:
        expected: [n, D'] the vectors of the rows that ``compute`` gives.
        tolerance: largest error that counts as agreement, as a share of the largest magnitude.
        key: of the result that they are of.

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
    if not any(one.error <= tolerance for one in tried):
        tried += model.tried(everywhere(files))
    mends = tuple(one for one in tried if one.error <= tolerance)
    nearest = min(tried, key=lambda one: one.error, default=None)
    if mends or (nearest is not None and nearest.error >= worst):
        nearest = None
    return Difference(error=worst, row=int(errors.argmax()), mends=mends, nearest=nearest)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """One model against one reference; `seen` holds what identifies the programs computed."""

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
        found = self.compute(program).double()
        errors = (found - self.expected).abs().amax(1) / self.expected.abs().max()
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
