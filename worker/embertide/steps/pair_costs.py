"""Memory and traffic of attention with scores of both ends (``pair_attend``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embertide.footprint import FLOAT_BYTES
from embertide.steps.costs import Costs
from embertide.steps.moves import Conversion, HeadScores, TileRows, WholeRows

if TYPE_CHECKING:
    from embertide.steps.pair_attend import PairAttend


def cost_pairs(costs: Costs, steps: Sequence[PairAttend]) -> None:
    """Scores of a sub-range's edges, exchanged before the results are there; then sums.

    All steps have the keys and values of the first one.
    """
    first = steps[0]
    reads_all, width = costs.size.reads_all, costs.width(first.x)
    keys, copy = costs.sent(first.key), costs.sent(first.x)
    costs.build(*(step.edges for step in steps))
    names = tuple(step.relation for step in steps)
    union = costs.size.of_relations(names)
    costs.moves.append(WholeRows(first.edges, costs.width(first.key), names))
    for step in steps:
        costs.moves.append(HeadScores(step.edges, step.heads, "sddmm", of="edge"))
    costs.moves.append(TileRows(first.edges, width / union.feature, names))
    scores = 0.0
    if not reads_all:
        costs.need(keys + _shared_bytes(steps, costs))
        scores = sum(_received_bytes(step, costs) for step in steps)
    results = sum(costs.of(step.out).tensor(width) for step in steps)
    costs.need((keys if reads_all else 0.0) + copy + results + scores + union.in_flight(width))
    parts = [step for step in steps if step.in_parts]
    if parts:
        _parts(costs, parts)


def _parts(costs: Costs, steps: Sequence[PairAttend]) -> None:
    """Sums become rows one after the other, while the logarithms of all are kept."""
    if costs.grid.feature > 1:
        costs.moves += [Conversion(s.layer, s.out, costs.width(s.x)) for s in steps]
    whole = [costs.of(s.out).tensor(costs.width(s.x) + s.heads) for s in steps]
    logs = [costs.of(s.out).tensor(s.heads) for s in steps]
    if costs.size.reads_all:
        # In place, with the logarithms that they are computed from.
        costs.need(sum(whole) + 3 * sum(logs))
    else:
        costs.need(sum(whole) + max(whole) + sum(logs))


def _shared_bytes(steps: Sequence[PairAttend], costs: Costs) -> float:
    """Bytes of our sub-range's scores; where slices exchange them, of what is sent and received."""
    own = [FLOAT_BYTES * s.heads * costs.over(s.edges).edges / costs.grid.workers for s in steps]
    if costs.grid.feature == 1:
        return sum(own)
    received = [_received_bytes(step, costs) for step in steps]
    return sum(own) + max(own) + sum(received) + max(received)


def _received_bytes(step: PairAttend, costs: Costs) -> float:
    """Bytes of the shares of a partition's edges, of the heads of a worker's columns."""
    size = costs.over(step.edges)
    return FLOAT_BYTES * size.heads(step.heads) * size.edges / size.graph
