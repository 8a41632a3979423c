"""Ranks of one host read each other's tensors where they stand, and give the memory back."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from embertide.kernels import memory, native
from embertide.launch.worker import is_lost_peer
from embertide.primitives.exchange import Exchange
from embertide.primitives.in_place import SPAN_ROWS, WindowRows, shown
from embertide.telemetry.memory import allocated_bytes
from tests.support.catalogue import catalogue
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(native.lib is None, reason="only native kernels map memory"),
]

MIB = 1 << 20
COUNTS = (3, 0, 5)
"""Rows of each rank; one has none."""


def rows_of(rank: int, width: int) -> torch.Tensor:
    """[n, width] that no other rank has."""
    return torch.arange(COUNTS[rank] * width).view(COUNTS[rank], width) + 1000.0 * rank


def _look(exchange: Exchange) -> list[list[list[float]]]:
    """Every rank's rows as this one sees them: of an odd width, and factors beside them."""
    channel, me = exchange.channel("world", "test"), exchange.grid.rank
    assert channel.in_place
    window = WindowRows(np.cumsum([0, *COUNTS]))
    # Columns of a wider tensor: shown as a copy.
    mine, scale = rows_of(me, 9)[:, 2:9], torch.full((COUNTS[me],), float(me))
    with shown(channel, [mine, scale]) as (rows, factors):
        seen, scales = rows.window(window), factors.window(window)
        nodes = torch.arange(sum(COUNTS), dtype=torch.int32)
        at = window.of_nodes(nodes).long()
        assert at.tolist() == [0, 1, 2, *range(SPAN_ROWS, SPAN_ROWS + 5)]
        assert scales[at].tolist() == [0.0] * 3 + [2.0] * 5
        copy = window.copy(seen)
        return [seen[at].tolist(), copy[at].tolist(), rows.of(2, 7).tolist()]


def test_rows_are_read_where_they_stand() -> None:
    whole = torch.cat([rows_of(rank, 9)[:, 2:9] for rank in range(3)]).tolist()
    for seen, copy, last in on_grid(3, 1, _look):
        assert seen == copy == whole
        assert last == rows_of(2, 9)[:, 2:9].tolist()


def _change(exchange: Exchange) -> list[float]:
    """A tensor that its owner changes as soon as it may, read several times."""
    channel, found = exchange.channel("world", "test"), []
    tensor = memory.empty((20 * MIB // 4, 1))
    for turn in range(3):
        tensor.fill_(turn + 10 * exchange.grid.rank)
        with shown(channel, [tensor]) as (seen,):
            theirs = seen.of(1 - exchange.grid.rank, 1)
            assert float(theirs.min()) == float(theirs.max())
            found.append(float(theirs[-1]))
    return found


def test_what_is_shown_changes_only_after_all_have_read_it() -> None:
    assert on_grid(2, 1, _change) == [[10.0, 11.0, 12.0], [0.0, 1.0, 2.0]]


def _hold(exchange: Exchange) -> list[int]:
    """MiB that a shared tensor takes: while it is there, as the peer maps it, and after."""
    channel, before = exchange.channel("world", "test"), allocated_bytes()
    tensor = memory.empty((64 * MIB // 4, 1))
    held = [allocated_bytes() - before]
    with shown(channel, [tensor]) as (seen,):
        seen.of(1 - exchange.grid.rank, 1).sum()
        held.append(allocated_bytes() - before)
    del tensor, seen
    memory.release_idle()
    held.append(allocated_bytes() - before)
    return [size // MIB for size in held]


def test_shared_memory_counts_as_its_owners_and_goes_back() -> None:
    for alone, mapped, after in on_grid(2, 1, _hold):
        assert 64 <= alone < 72
        assert 64 <= mapped < 72
        assert after < 8


def _lose(exchange: Exchange) -> str | None:
    if exchange.grid.rank == 1:
        exchange.links[0]._socket.close()
        return None
    channel = exchange.channel("world", "test")
    try:
        with shown(channel, [torch.ones(4, 1)]) as (seen,):
            return f"not told: {seen}"
    except Exception as error:
        return "lost" if is_lost_peer(error) else str(error)


def test_a_lost_peer_is_told() -> None:
    assert on_grid(2, 1, _lose)[0] == "lost"


def _fork(exchange: Exchange) -> bool:
    """A process that is forked shares nothing, and frees nothing of ours."""
    tensor = memory.empty((16 * MIB // 4,)).fill_(1)
    child = os.fork()
    if child == 0:
        own = memory.empty((16 * MIB // 4,)).fill_(2)
        private = native.lib.place_in_file(own.data_ptr()) < 0
        del tensor, own
        memory.release_idle()
        os._exit(0 if private else 1)
    _, status = os.waitpid(child, 0)
    return status == 0 and float(tensor.min()) == 1.0


def test_a_forked_process_has_memory_of_its_own() -> None:
    assert on_grid(2, 1, _fork) == [True, True]


def test_two_runs_give_the_same_bits() -> None:
    """Sums go over all non-zeros at once, in the order of the graph, whoever is faster."""
    case = next(iter(catalogue().values()))
    graphs, programs = (
        {(case.kind, case.weighted): case.graph},
        [(case.program, case.kind, case.weighted)],
    )
    first, second = (on_grid(3, 1, embed_all, graphs, programs) for _ in range(2))
    for (one,), (other,) in zip(first, second, strict=True):
        assert np.array_equal(one, other)
