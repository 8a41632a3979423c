"""How far rows are from those computed again, and how far they may be.

A value may differ by a share of its column's largest magnitude, or of a tenth of the median
column's where that is more, as in columns that relu leaves nearly empty. The share is 1e-5 with
float32, which every model and grid of our tests keeps to, and 2^-6 more with rows in bfloat16,
which are rounded by up to 2^-8 of themselves as they are read over edges, twice as they change
their layout, and as they are scaled.

Where a layer magnifies rounding, as a norm of rows whose values are nearly equal does, the right
result in float32 is further off than that. So rows beyond the share are computed some times more,
with everything that is read or made changed at random by up to the rounding of its type; they may
differ by 64 times what that changes in the column, and a row with n > 64 in-edges by n times: a sum
of n values in float32 is off by up to n roundings of its result, as where equal values are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embertide.kernels.heads import NO_SCORES
from embertide.program.selfcheck.draw import Nodes
from embertide.program.selfcheck.recompute import Change, unchanged

TOLERANCE = 1e-5
_BFLOAT16_TOLERANCE = 2.0**-6
_UNITS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
_REPEATS = 8
_LEAST_SCALE = 0.1
_TIMES = 64
_LEAST_ROWS = 64
"""Rows, if there are so many, by which it is found out what rounding changes."""
LARGE = 2.0**58
"""float32 ends at 2^128: twice 58, and 2^12 values in a sum, the most in-edges that are checked."""


@dataclass(frozen=True)
class Limits:
    """How far values may be from those computed again, for rows of a type."""

    row_type: torch.dtype

    @property
    def tolerance(self) -> float:
        """As a share of a column's largest magnitude."""
        return TOLERANCE + (_BFLOAT16_TOLERANCE if self.row_type != torch.float32 else 0.0)

    def times(self, in_edges: Nodes) -> Tensor:
        """[n, 1] how often rows with so many in-edges may be off by what rounding changes."""
        # Rows in bfloat16 are rounded one by one, and summed in float32.
        counts = in_edges if self.row_type == torch.float32 else np.zeros_like(in_edges)
        return torch.from_numpy(np.maximum(counts, _TIMES)).double().unsqueeze(1)

    def rounding(self, seed: int) -> Change:
        """Changes values at random by up to the rounding of the type."""
        generator = torch.Generator().manual_seed(seed)
        unit = _UNITS[self.row_type]

        def change(values: Tensor) -> Tensor:
            by = torch.rand(values.shape, generator=generator, dtype=torch.float64)
            return values * (1 + unit * (2 * by - 1))

        return change


def magnitudes(expected: Tensor) -> Tensor:
    """[D] the largest of each column, but for logarithms of sums of nothing; 0 without rows."""
    size = expected.abs().nan_to_num(nan=0.0, posinf=0.0)
    size = torch.where(size >= -NO_SCORES / 2, 0.0, size)
    return torch.cat([size, size.new_zeros(1, size.shape[1])]).amax(0)


def allowed_differences(
    off: Tensor,
    scale: Tensor,
    in_edges: Nodes,
    limits: Limits,
    again: Callable[[Nodes, Change], Tensor],
) -> Tensor:
    """[n, D] how far values may be from those computed again; [1, D] where that is all rows' limit.

    Args:
        off: [n, D] how far they are.
        scale: [D] the largest magnitude of each column, over all ranks.
        in_edges: [n] of each row, whose sources' rows are summed.
        again: computes some rows again, with a change of what is read and made.
    """
    some = scale[scale > 0]
    least = _LEAST_SCALE * some.median() if len(some) else scale.new_zeros(())
    allowed = limits.tolerance * scale.clamp(min=least)
    far = (off > allowed).any(1)
    if not bool(far.any()):
        return allowed.unsqueeze(0)
    suspects = torch.nonzero(far).squeeze(1).numpy()
    places = np.union1d(suspects, np.arange(min(len(off), _LEAST_ROWS)))
    exact, noise = again(places, unchanged), torch.zeros_like(scale)
    for number in range(_REPEATS):
        changed = again(places, limits.rounding(number))
        moved = (changed - exact).abs().nan_to_num(nan=0.0, posinf=0.0)
        noise = torch.maximum(noise, moved.amax(0))
    return allowed + limits.times(in_edges) * noise


def overflowed(
    values: Tensor, expected: Tensor, far: Tensor, again: Callable[[Nodes, Change], Tensor]
) -> Tensor:
    """[n, D] bool, which of the values that are too far off are so by an overflow of float32, which
    is the model's doing and no worker's.

    In float64 a product of 1e30 and 1e30 is 1e60; the run has an infinity or, where two of them
    meet, NaN, and a tanh or a norm of that may be finite and wrong. So values that are too far off
    are computed once more, with NaN in the place of all that is so large that float32 overflows
    where it, its square or a sum of such is made: where NaN comes out, an overflow explains them.

    Args:
        values: [n, D] as the run has them.
        expected: [n, D] float64; not finite where it is made of what is not, which was compared
            when it was made.
        far: [n, D] bool, which are too far off.
        again: computes some rows again, with a change of what is read and made.
    """
    lost = far.clone()
    places = torch.nonzero(far.any(1)).squeeze(1)
    if len(places):
        reached = ~(again(places.numpy(), _marked) + expected[places]).isfinite()
        # Within a step, sums of a row's other columns overflow before they cancel each other.
        lost[places] &= reached | (reached.any(1, keepdim=True) & ~values[places].isfinite())
    return lost


def _marked(values: Tensor) -> Tensor:
    """NaN in the place of what is large, but for logarithms of sums of nothing."""
    nothing = (values / NO_SCORES - 1).abs() < 1e-3
    return torch.where((values.abs() > LARGE) & ~nothing, torch.nan, values)
