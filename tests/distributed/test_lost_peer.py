"""Whether an error says that another worker is gone, held to what gloo really raises."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from embertide.graph.exchange import Exchange
from embertide.launch.worker import is_lost_peer
from tests.support.ranks import on_grid

pytestmark = pytest.mark.distributed


def _lose(exchange: Exchange, how: str) -> tuple[bool, str] | None:
    """Rank 1 leaves, or stays and sends nothing; rank 0 answers what its receive raised."""
    if exchange.grid.rank == 1:
        if how == "leaves":
            dist.destroy_process_group()
        return None
    work = dist.irecv(torch.empty(1), 1)
    assert work is not None
    try:
        work.wait(timedelta(seconds=2)) if how == "says nothing" else work.wait()
    except Exception as error:
        return is_lost_peer(error), str(error)
    return None


@pytest.mark.parametrize("how", ["leaves", "says nothing"])
def test_a_peer_that_is_gone_is_told_by_what_gloo_says(how: str) -> None:
    found = on_grid(2, 1, _lose, how)[0]
    assert found is not None
    assert found[0], found[1]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (dist.DistNetworkError("Connection reset by peer"), True),
        (RuntimeError("[x/gloo/transport/tcp/pair.cc:1] Connection closed by peer [::1]"), True),
        (RuntimeError("[x/gloo/transport/tcp/pair.cc:2] Read error [::1]:1: Broken pipe"), True),
        (RuntimeError("Application timeout caused pair closure"), True),
        (RuntimeError("[enforce fail at x/gloo/transport/tcp/pair.cc:446] 8 vs 4"), False),
        (RuntimeError("gloo: shape mismatch"), False),
        (RuntimeError("NCCL"), False),
        (ConnectionResetError("Connection reset by peer"), False),
    ],
)
def test_other_errors_are_our_own(error: Exception, lost: bool) -> None:
    assert is_lost_peer(error) == lost
