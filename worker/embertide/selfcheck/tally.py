"""What one rank finds of a tensor, and what all ranks find together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from embertide.grid import RowRanges
from embertide.selfcheck.draw import Nodes
from embertide.telemetry.self_check import CheckedRows, Fault

_MOST_FAULTS = 5
_LEAST = 1e-300
"""Instead of zero, where something is divided by it."""

NameOf = Callable[[str, int], str]
"""Node type and dense id of a node of ours -> its id in the files."""


@dataclass
class Tally:
    """Rows of a tensor that were compared.

    Attributes:
        layer: the layer graph, from 0.
        makes: the tensor, and what of it.
        node_type: of its rows.
        largest: magnitude of the rows that were computed again.
    """

    layer: int
    makes: str
    node_type: str
    rows: int = 0
    in_edges: int = 0
    largest: float = 0.0
    largest_difference: float = 0.0
    beyond: int = 0
    faults: list[Fault] = field(default_factory=list)

    def find(
        self, nodes: Nodes, values: Tensor, expected: Tensor, allowed: Tensor, name_of: NameOf
    ) -> None:
        """Keep the worst values of rows that are too far off.

        Args:
            values: [n, D] as the run has them.
            expected: [n, D] float64.
            allowed: [n, D] or [D] how far apart they may be.
        """
        off = difference(values, expected)
        far = off > allowed
        self.largest_difference = float(off.max()) if off.numel() else 0.0
        self.beyond = int(far.any(1).sum())
        worst = torch.where(far, off / allowed.clamp(min=_LEAST), -1.0)
        rows = worst.amax(1).argsort(descending=True, stable=True) if self.beyond else worst[:0, 0]
        for row in rows[: min(self.beyond, _MOST_FAULTS)].tolist():
            column = int(worst[row].argmax())
            self.faults.append(
                Fault(
                    layer=self.layer,
                    makes=self.makes,
                    node_type=self.node_type,
                    id=name_of(self.node_type, int(nodes[row])),
                    column=column,
                    value=float(values[row, column]),
                    expected=float(expected[row, column]),
                    allowed=float(allowed.expand_as(off)[row, column]),
                )
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tally:
        """What :meth:`to_json` described."""
        return cls(**{**data, "faults": [Fault(**fault) for fault in data["faults"]]})

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
        faults=[fault for one in tallies for fault in one.faults],
    )


def worst_of(tallies: Sequence[Tally]) -> list[Fault]:
    """The values that are furthest beyond what they may differ by."""
    faults = [fault for one in tallies for fault in one.faults]
    faults.sort(key=lambda fault: -abs(fault.value - fault.expected) / max(fault.allowed, _LEAST))
    return faults[:_MOST_FAULTS]


def difference(rows: Tensor, expected: Tensor) -> Tensor:
    """[n, D] float64 how far float32 rows are from those expected; what is no number is infinite.

    Nothing where both are the same float32.
    """
    same = (rows == expected.float()) | (rows.isnan() & expected.isnan())
    off = (rows.double() - expected).abs().nan_to_num(nan=torch.inf)
    return torch.where(same, 0.0, off)
