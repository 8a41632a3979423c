"""How many groups travel in one message: what is tried, what is chosen, what the plan says."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from embertide.facts.telemetry.recorder import NullRecorder
from embertide.footprint import GraphSize
from embertide.graph.exchange import Exchange
from embertide.graph.merging import Merging, Pace, numbers_tried
from embertide.grid import Grid
from embertide.spec.grid import GridShape


@pytest.mark.parametrize(
    ("most", "tried"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))]
)
def test_powers_of_two_and_the_most_are_tried(most: int, tried: tuple[int, ...]) -> None:
    assert numbers_tried(most) == tried


@pytest.mark.parametrize("groups", [0, 1, 7, 40])
@pytest.mark.parametrize("each", [None, 1, 3])
def test_every_group_travels_once_in_order(groups: int, each: int | None) -> None:
    spans = list(Pace(2, each, (1, 2, 3)).spans(groups))
    assert list(chain.from_iterable(range(*span) for span in spans)) == list(range(groups))
    assert max((last - first for first, last in spans), default=0) <= 3


@pytest.mark.parametrize("fastest", [1, 2, 4])
def test_what_took_least_time_a_group_is_chosen(fastest: int) -> None:
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    merging, channel = Merging(4), exchange.channel("graph", "spmm", 0)
    first = merging.pace(channel, 2)
    assert (first.depth, first.each) == (2, None)
    # The first ones came while something else was computed, and count for nothing.
    first.took(0, fastest, 100.0)
    first.took(1, fastest, 100.0)
    for groups in (1, 2, 4):
        first.took(groups + 1, groups, groups * (1.0 if groups == fastest else 2.0))
    later = merging.pace(channel, 2)
    # Three buffers for four groups each: where fewer travel at a time, more are under way.
    assert (later.each, later.depth) == (fastest, 12 // fastest - 1)
    assert merging.pace(exchange.channel("graph", "scalars", 0), 2).each is None


def test_nothing_is_timed_where_groups_travel_alone() -> None:
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    for _ in range(2):
        assert Merging().pace(exchange.channel("graph", "spmm", 0), 3) == Pace(3)


def test_the_plan_has_room_for_the_largest_messages() -> None:
    """Six buffers of one group; of four groups each, and one where a group is put together."""
    buffers = {
        merged: GraphSize(
            nodes={"": 1 << 20},
            edges={"": 1 << 24},
            grid=GridShape.of(4, 1),
            group_bytes=1 << 20,
            depth=2,
            merged=merged,
        )
        .of_relation("")
        .in_flight(128)
        for merged in (1, 4)
    }
    assert buffers == {1: 6 << 20, 4: (24 + 1) << 20}
