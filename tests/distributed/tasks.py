"""What ranks do for the tests; light to import, like all that ranks import."""

from __future__ import annotations

import numpy as np
from world import Graph, Rank, make_features, make_job

from embertide.grid import RowRanges
from embertide.metrics import CountingRecorder, Label, NullRecorder
from embertide.models.plan import Plan
from embertide.primitives.exchange import Exchange


def embed_all(
    exchange: Exchange, graphs: dict[tuple[str, bool], Graph], cases: list[tuple[Plan, str, bool]]
) -> list[np.ndarray]:
    """Our rows of every case's embeddings."""
    ranks = {key: Rank(exchange, graph, make_job(weighted=key[1])) for key, graph in graphs.items()}
    return [
        ranks[kind, weighted].embed(plan, make_features(plan.input_width))
        for plan, kind, weighted in cases
    ]


Totals = dict[Label, tuple[int, int]]


def count_traffic(
    exchange: Exchange, graph: Graph, plans: dict[str, Plan]
) -> tuple[RowRanges, dict[str, Totals]]:
    """Bytes sent and received per label: of the stages up to the CSR, then of each plan."""

    def totals() -> Totals:
        counted = exchange.recorder.totals
        exchange.recorder = CountingRecorder()
        sizes = {at: (t.bytes_sent, t.bytes_received) for at, t in counted.items()}
        return {at: size for at, size in sizes.items() if any(size)}

    rank = Rank(exchange, graph, make_job(weighted=graph.weight is not None))
    counted = {"setup": totals()}
    for name, plan in plans.items():
        rank.embed(plan, make_features(plan.input_width))
        counted[name] = totals()
    return rank.ranges, counted


class EventLog(NullRecorder):
    """What happened, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Label]] = []

    def received(self, label: Label, size: int) -> None:
        self.events.append(("posted", label))

    def waited(self, label: Label, seconds: float) -> None:
        self.events.append(("arrived", label))

    def computed(self, label: Label, seconds: float) -> None:
        self.events.append(("computed", label))


def log_events(exchange: Exchange, graph: Graph, plan: Plan, depth: int) -> list[tuple[str, Label]]:
    """Transfers posted, awaited, and blocks computed, while a plan runs."""
    rank = Rank(exchange, graph, make_job(depth=depth))
    exchange.recorder = EventLog()
    rank.embed(plan, make_features(plan.input_width))
    return exchange.recorder.events
