"""Bytes that one worker sends, added up by axis, primitive, layer and relation."""

from __future__ import annotations

import math

from embertide.facts.telemetry.recorder import Key, RelationLabels
from embertide.facts.telemetry.report import PlannedTraffic


class TrafficSums:
    """Bytes and messages of a mean worker."""

    def __init__(self) -> None:
        self._sums: dict[Key, tuple[float, float, float]] = {}
        self._labels = RelationLabels()

    def add(
        self,
        axis: str,
        primitive: str,
        layer: int,
        sent: float,
        messages: float,
        *relations: str,
        fewest: float | None = None,
    ) -> None:
        """Count bytes and messages, for some relations.

        Args:
            fewest: messages where as many groups as may be travel in one.
        """
        key = axis, primitive, layer, self._labels.of(*(relations or ("",)))
        more = sent, messages, messages if fewest is None else fewest
        before = self._sums.get(key, (0.0, 0.0, 0.0))
        self._sums[key] = before[0] + more[0], before[1] + more[1], before[2] + more[2]

    def traffic(self) -> list[PlannedTraffic]:
        """All that moves, rounded up; nothing that is zero."""
        return [
            PlannedTraffic(
                axis,
                primitive,
                layer,
                _whole(sent),
                _whole(messages),
                relation,
                _whole(fewest) if fewest < messages else None,
            )
            for (axis, primitive, layer, relation), (sent, messages, fewest) in self._sums.items()
            if sent
        ]


def _whole(value: float) -> int:
    return math.ceil(round(value, 3))
