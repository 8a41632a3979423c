"""What one rank finds of a tensor, and what all ranks find together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embertide.facts.telemetry.self_check import CheckedRows, Fault
from embertide.grid import RowRanges
from embertide.program.selfcheck.draw import Nodes
from embertide.program.selfcheck.judge import overflowed
from embertide.program.selfcheck.recompute import Change
from embertide.spec.plain import Plain

_MOST_FAULTS = 5
_LEAST = 1e-300
"""Instead of zero, where something is divided by it."""

NameOf = Callable[[str, int], str]
"""Node type and dense id of a node of ours -> its id in the files."""


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
