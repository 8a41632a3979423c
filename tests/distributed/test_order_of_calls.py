"""Transfers are started in an order in which NCCL, which runs call after call, can end them all."""

from __future__ import annotations

import pytest

from tests.support.ranks import on_grid
from tests.support.step_cases import step_cases
from tests.support.step_program import EDGE_FEATURES
from tests.support.tasks import Call, log_calls
from tests.support.world import make_graph

pytestmark = pytest.mark.distributed

GRAPH = make_graph(weighted=True, features=EDGE_FEATURES)
NAMES = {"send": "receive", "receive": "send"}


def ended(ranks: list[list[Call]]) -> list[int]:
    """How many calls of each rank end, where a call ends once the others of its messages began.

    A rank begins a call when all before it have ended: stricter than any device is.
    """
    done = [0] * len(ranks)
    while True:
        began = {
            (what, rank, peer, number)
            for rank, calls in enumerate(ranks)
            for what, peer, number in (calls[done[rank]] if done[rank] < len(calls) else [])
        }
        ends = _those_that_end(ranks, done, began)
        if not ends:
            return done
        for rank in ends:
            done[rank] += 1


def _those_that_end(
    ranks: list[list[Call]], done: list[int], began: set[tuple[str, int, int, int]]
) -> set[int]:
    """The ranks whose calls end together: none waits for a rank that is not among them."""
    able = {rank for rank, calls in enumerate(ranks) if done[rank] < len(calls)}
    while True:
        stuck = {
            rank
            for rank in able
            for what, peer, number in ranks[rank][done[rank]]
            if peer not in able or (NAMES[what], peer, rank, number) not in began
        }
        if not stuck:
            return able
        able -= stuck


def test_there_is_always_a_call_that_can_end() -> None:
    of_each_kind = {name.split()[0]: program for name, program in step_cases().items()}
    ranks = on_grid(2, 2, log_calls, GRAPH, of_each_kind, 3)
    assert ended(ranks) == [len(calls) for calls in ranks]
    assert min(map(len, ranks)) > 100


def test_two_ranks_that_start_in_different_orders_would_be_noticed() -> None:
    """Three pairs, each with one message, started by each rank in another order."""

    def exchange(peer: int) -> Call:
        return [("send", peer, 1), ("receive", peer, 1)]

    around = [[exchange(1), exchange(2)], [exchange(2), exchange(0)], [exchange(0), exchange(1)]]
    assert ended(around) == [0, 0, 0]
    around[2].reverse()
    assert ended(around) == [2, 2, 2]
