"""What a worker tells of itself while it works."""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.facts.telemetry.report import PlannedTraffic, RankMemory, Span, Traffic
from embertide.facts.telemetry.transfers import TransferStats
from embertide.plain import Plain


@dataclass(frozen=True)
class Snapshot(Plain):
    """One worker's metrics while it works.

    ``stage`` is the one that runs, "" between them; ``stages`` maps each to its seconds so far.
    ``nodes`` and ``edges`` of the whole graph are 0 until they are known; ``rows_done`` and
    ``edges_done`` are what this worker has processed, by stage. ``began`` is when its run began, in
    seconds since the epoch; ``spans`` are its stages and layers that are over, and ``under_way``
    maps each stage that is not to its start, in seconds since then. ``resumed_layer`` is the kept
    layer after which it went on, 0 for none.
    """

    rank: int
    stage: str
    stages: dict[str, float]
    memory: RankMemory
    resident_bytes: int
    nodes: int
    edges: int
    traffic: list[Traffic] = field(default_factory=list)
    planned_traffic: list[PlannedTraffic] = field(default_factory=list)
    rows_done: dict[str, int] = field(default_factory=dict)
    edges_done: dict[str, int] = field(default_factory=dict)
    storage: TransferStats = field(default_factory=TransferStats)
    began: float = 0.0
    spans: list[Span] = field(default_factory=list)
    under_way: dict[str, float] = field(default_factory=dict)
    resumed_layer: int = 0
