"""Workers of one host read each other's memory; whatever way a message goes, it is the same."""

from __future__ import annotations

import os

import pytest
import torch

from embertide.graph.exchange import Exchange
from embertide.graph.transports.direct import read_memory
from embertide.launch.worker import is_lost_peer
from tests.support.ranks import on_grid
from tests.support.tiers import by_turns

pytestmark = pytest.mark.distributed


def _choose(exchange: Exchange, way: str) -> None:
    """Drop links: all of them, or one between the first two ranks, the same on both sides."""
    assert sorted(exchange.links) == [
        r for r in range(exchange.grid.world) if r != exchange.grid.rank
    ]
    if way == "network":
        exchange.links.clear()
    elif way == "mixed" and exchange.grid.rank < 2:
        del exchange.links[1 - exchange.grid.rank]


def _all_to_all(exchange: Exchange, way: str, sizes: list[int]) -> list[list[list[int]]]:
    """Rounds of messages of these sizes, all posted before the first is waited for."""
    _choose(exchange, way)
    channel, me = exchange.channel("world", "test"), exchange.grid.rank
    others, got, flying = channel.axis.others(), [], []
    for number, size in enumerate(sizes):
        sends = [(i, torch.full((size,), 100 * number + 10 * me + i)) for i in others]
        got.append([torch.zeros(size, dtype=torch.int64) for _ in others])
        flying.append(channel.start(sends, list(zip(others, got[-1], strict=True))))
    for pending in reversed(flying):
        pending.wait()
    return [[tensor.unique().tolist() for tensor in tensors] for tensors in got]


@pytest.mark.parametrize(
    ("way", "sizes"),
    by_turns(["direct", "mixed", "network"], [[1 << 21, 5], [3, 0, 1], [1] * 700]),
)
def test_messages_arrive_in_order(way: str, sizes: list[int]) -> None:
    for me, found in enumerate(on_grid(3, 1, _all_to_all, way, sizes)):
        for number, tensors in enumerate(found):
            sent = [100 * number + 10 * ((me + step) % 3) + me for step in (1, 2)]
            assert tensors == [[v] if sizes[number] else [] for v in sent]


def _read_a_lot(exchange: Exchange) -> bool:
    """One message that several threads read."""
    torch.set_num_threads(3)
    channel, other = exchange.channel("world", "test"), 1 - exchange.grid.rank
    sent, got = torch.arange(5_000_001) + exchange.grid.rank, torch.zeros(5_000_001).long()
    channel.start([(other, sent)], [(other, got)]).wait()
    return torch.equal(got, torch.arange(5_000_001) + other)


def test_several_threads_read() -> None:
    assert on_grid(2, 1, _read_a_lot) == [True, True]


def _lose(exchange: Exchange, how: str) -> tuple[bool, str] | None:
    """Rank 1 ends, which closes its sockets, or stays silent while rank 0 waits for it."""
    channel = exchange.channel("world", "test")
    if exchange.grid.rank == 1:
        if how != "silent":
            exchange.links[0]._socket.close()
        return None
    if how == "silent":
        exchange.links[1]._milliseconds = 100
    message = [(1, torch.ones(4))]
    try:
        channel.start(*((message, []) if how == "takes nothing" else ([], message))).wait()
    except Exception as error:
        return is_lost_peer(error), str(error)
    return None


@pytest.mark.parametrize("how", ["sends nothing", "takes nothing", "silent"])
def test_a_lost_peer_is_told(how: str) -> None:
    found = on_grid(2, 1, _lose, how)
    assert found[0] is not None
    assert found[0][0], found[0][1]


def _read_the_dead(exchange: Exchange) -> bool:
    """A message that was offered by a process that has ended since."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(ProcessLookupError):
        read_memory(child, 1 << 20, torch.zeros(4))
    return True


def test_a_dead_process_is_told_from_other_errors() -> None:
    assert on_grid(1, 1, _read_the_dead) == [True]
