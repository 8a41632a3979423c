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

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from embertide.facts.telemetry.self_check import CheckedRows, Fault
from embertide.grid import RowRanges
from embertide.kernels.heads import NO_SCORES
from embertide.plain import Plain
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
_MOST_FAULTS = 5
_LEAST = 1e-300
"""Instead of zero, where something is divided by it."""
NameOf = Callable[[str, int], str]
"""Node type and dense id of a node of ours -> its id in the files."""


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


@dataclass
class Tally(Plain):
    """Rows of a tensor that were compared.

    Attributes:
        layer: the layer graph, from 0.
        makes: the tensor, and what of it.
        node_type: of its rows.
        largest: magnitude of the rows that were computed again.
        beyond, faults: rows that differ by more than they may, and the worst of their values.
        overflowed, overflows: the same of rows that float32 is too small for.
    """

    layer: int
    makes: str
    node_type: str
    rows: int = 0
    in_edges: int = 0
    largest: float = 0.0
    largest_difference: float = 0.0
    beyond: int = 0
    overflowed: int = 0
    faults: list[Fault] = field(default_factory=list)
    overflows: list[Fault] = field(default_factory=list)

    def find(
        self,
        nodes: Nodes,
        values: Tensor,
        expected: Tensor,
        allowed: Tensor,
        name_of: NameOf,
        again: Callable[[Nodes, Change], Tensor] | None = None,
    ) -> None:
        """Keep the worst values of rows that are too far off.

        Args:
            values: [n, D] as the run has them.
            expected: [n, D] float64.
            allowed: [n, D] or [D] how far apart they may be.
            again: computes some rows again, with a change of what is read and made; None: they
                were only read again.
        """
        off = difference(values, expected)
        far = off > allowed
        lost = overflowed(values, expected, far, again) if again else torch.zeros_like(far)
        self.largest_difference = float(off.max()) if off.numel() else 0.0

        def worst(which: Tensor) -> tuple[int, list[Fault]]:
            """How many rows have such values, and the furthest off of them."""
            count = int(which.any(1).sum())
            times = torch.where(which, off / allowed.clamp(min=_LEAST), -1.0)
            rows = times.amax(1).argsort(descending=True, stable=True) if count else times[:0, 0]
            places = [(row, int(times[row].argmax())) for row in rows[:count].tolist()]
            return count, [fault(*place) for place in places[:_MOST_FAULTS]]

        def fault(row: int, column: int) -> Fault:
            return Fault(
                layer=self.layer,
                makes=self.makes,
                node_type=self.node_type,
                id=name_of(self.node_type, int(nodes[row])),
                column=column,
                value=float(values[row, column]),
                expected=float(expected[row, column]),
                allowed=float(allowed.expand_as(off)[row, column]),
            )

        self.beyond, self.faults = worst(far & ~lost)
        self.overflowed, self.overflows = worst(lost)

    def result(self, ranges: Mapping[str, RowRanges]) -> CheckedRows:
        """For reports."""
        return CheckedRows(
            layer=self.layer,
            node_type=self.node_type,
            makes=self.makes,
            rows=self.rows,
            nodes=ranges[self.node_type].nodes,
            in_edges=self.in_edges,
            largest_error=self.largest_difference / (self.largest or 1.0),
            beyond=self.beyond,
            overflowed=self.overflowed,
        )


def joined(tallies: Sequence[Tally]) -> Tally:
    """The sum of what all ranks found of a tensor."""
    first = tallies[0]
    return Tally(
        layer=first.layer,
        makes=first.makes,
        node_type=first.node_type,
        rows=sum(one.rows for one in tallies),
        in_edges=sum(one.in_edges for one in tallies),
        largest=max(one.largest for one in tallies),
        largest_difference=max(one.largest_difference for one in tallies),
        beyond=sum(one.beyond for one in tallies),
        overflowed=sum(one.overflowed for one in tallies),
        faults=[fault for one in tallies for fault in one.faults],
        overflows=[fault for one in tallies for fault in one.overflows],
    )


def worst_of(faults: Iterable[Fault]) -> list[Fault]:
    """The values that are furthest beyond what they may differ by."""

    def times(fault: Fault) -> float:
        off = abs(fault.value - fault.expected) / max(fault.allowed, _LEAST)
        return math.inf if math.isnan(off) else off

    return sorted(faults, key=times, reverse=True)[:_MOST_FAULTS]


def difference(rows: Tensor, expected: Tensor) -> Tensor:
    """[n, D] float64 how far float32 rows are from those expected; what is no number is infinite.

    Nothing where both are the same float32.
    """
    same = (rows == expected.float()) | (rows.isnan() & expected.isnan())
    off = (rows.double() - expected).abs().nan_to_num(nan=torch.inf)
    return torch.where(same, 0.0, off)
