"""What attention with scores of both ends (``pair_attend``) holds and moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embertide.footprint import FLOAT_BYTES
from embertide.steps.moves import Conversion, HeadScores, TileRows, WholeRows
from embertide.steps.walk import Walk

if TYPE_CHECKING:
    from embertide.steps.pair_attend import PairAttend


def walk_pairs(walk: Walk, steps: Sequence[PairAttend]) -> None:
    """Scores of a sub-range's edges, exchanged before the results are there; then sums.

    All steps have the keys and values of the first one.
    """
    first = steps[0]
    reads_all, width = walk.size.reads_all, walk.width(first.x)
    for step in steps:
        for name in (step.query, step.before):
            if name is not None:
                walk.get(name, "rows")
    keys = walk.gathered(first.key, "tile" if reads_all else "rows")
    copy = walk.gathered(first.x, "tile")
    walk.build(*(step.edges for step in steps))
    names = tuple(step.relation for step in steps)
    union = walk.size.of_relations(names)
    walk.moves.append(WholeRows(first.edges, walk.width(first.key), names))
    for step in steps:
        walk.moves.append(HeadScores(step.edges, step.heads, "sddmm", of="edge"))
    walk.moves.append(TileRows(first.edges, width / union.feature, names))
    scores = 0.0
    if not reads_all:
        walk.need(keys + _shared_bytes(steps, walk))
        scores = sum(_received_bytes(step, walk) for step in steps)
    made = sum(walk.of(step.out).tensor(width) for step in steps)
    walk.need((keys if reads_all else 0.0) + copy + made + scores + union.in_flight(width))
    parts = [step for step in steps if step.in_parts]
    if parts:
        _walk_parts(walk, parts)


def _walk_parts(walk: Walk, steps: Sequence[PairAttend]) -> None:
    """Sums become rows one after the other, beside the logarithms of all."""
    if walk.grid.feature > 1:
        walk.moves += [Conversion(s.layer, s.out, walk.width(s.x)) for s in steps]
    whole = [walk.of(s.out).tensor(walk.width(s.x) + s.heads) for s in steps]
    logs = [walk.of(s.out).tensor(s.heads) for s in steps]
    if walk.size.reads_all:
        # Where they are, beside what they are made of.
        walk.need(sum(whole) + 3 * sum(logs))
    else:
        walk.need(sum(whole) + max(whole) + sum(logs))


def _shared_bytes(steps: Sequence[PairAttend], walk: Walk) -> float:
    """Bytes of our sub-range's scores; where slices exchange them, of what is sent and received."""
    own = [FLOAT_BYTES * s.heads * walk.over(s.edges).edges / walk.grid.workers for s in steps]
    if walk.grid.feature == 1:
        return sum(own)
    received = [_received_bytes(step, walk) for step in steps]
    return sum(own) + max(own) + sum(received) + max(received)


def _received_bytes(step: PairAttend, walk: Walk) -> float:
    """Bytes of the shares of a partition's edges, of the heads of a worker's columns."""
    size = walk.over(step.edges)
    return FLOAT_BYTES * size.heads(step.heads) * size.edges / size.graph
