"""Which values differ because float32 overflows, which is the model's doing and no worker's.

In float64 a product of 1e30 and 1e30 is 1e60; the run has an infinity or, where two of them meet,
NaN, and a tanh or a norm of that may be finite and wrong. So values that are too far off are
computed once more, with NaN in the place of all that is so large that float32 overflows where it,
its square or a sum of such is made: where NaN comes out, an overflow explains the difference.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from embertide.kernels.heads import NO_SCORES
from embertide.program.selfcheck.draw import Nodes
from embertide.program.selfcheck.recompute import Change

LARGE = 2.0**58
"""float32 ends at 2^128: twice 58, and 2^12 values in a sum, the most in-edges that are checked."""


def overflowed(
    values: Tensor, expected: Tensor, far: Tensor, again: Callable[[Nodes, Change], Tensor]
) -> Tensor:
    """[n, D] bool, which of the values that are too far off are so by an overflow.

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
