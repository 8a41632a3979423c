"""Objects between ranks and launchers are JSON: what a hostile peer sends is refused, never run."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from embertide.errors import WorkerFailed
from embertide.graph.exchange import Exchange
from embertide.graph.objects import MOST_BYTES, broadcast_object
from embertide.launch.bootstrap.rendezvous_state import JsonBackend, from_json, to_json
from tests.support.ranks import on_grid

pytestmark = pytest.mark.distributed

VALUES = [None, 7, -1.5, float("inf"), "ünïcode", [1, [2, "x"]], {"a": {"b": []}}, "y" * 100_000]


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self._path, "w")


def gather(exchange: Exchange) -> list[Any]:
    rank = exchange.grid.rank
    gathered = [exchange.all_objects([rank, value]) for value in VALUES]
    broadcast = broadcast_object({"of": rank}, rank)
    return [gathered, broadcast]


def test_every_rank_gets_every_ranks_value() -> None:
    everything = [[[rank, value] for rank in range(3)] for value in VALUES]
    assert on_grid(3, 1, gather) == [[everything, {"of": 0}]] * 3


def attack(exchange: Exchange, data: bytes, announced: int) -> str:
    """Rank 1 speaks the protocol, with a text of its own; what the others say to that."""
    if exchange.grid.rank != 1:
        try:
            exchange.all_objects("honest")
        except WorkerFailed as error:
            return str(error)
        return "nothing was noticed"
    length = torch.tensor([announced])
    lengths = [torch.empty_like(length) for _ in range(2)]
    dist.all_gather(lengths, length)
    if data:
        text = torch.zeros(max(int(length) for length in lengths), dtype=torch.uint8)
        text[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        dist.all_gather([torch.empty_like(text) for _ in range(2)], text)
    return ""


def test_a_pickle_from_a_peer_is_not_read(tmp_path: Path) -> None:
    made = tmp_path / "made"
    data = pickle.dumps(Touch(str(made)))
    # One that torch's own collective would have run.
    pickle.loads(data).close()  # noqa: S301
    made.unlink()
    told = on_grid(2, 1, attack_and_leave, data, len(data))[0]
    assert "worker 1 sent what is no JSON" in told
    assert not made.exists()


@pytest.mark.parametrize("announced", [0, -1, MOST_BYTES + 1])
def test_a_length_without_sense_is_not_believed(announced: int) -> None:
    told = on_grid(2, 1, attack_and_leave, b"", announced)[0]
    assert f"worker 1 announced an object of {announced} bytes" in told


def attack_and_leave(exchange: Exchange, data: bytes, announced: int) -> str:
    """The two agree on nothing afterwards but the end."""
    told = attack(exchange, data, announced)
    exchange.barrier()
    return told


# ---- the launchers' rendezvous


def state() -> _RendezvousState:
    made = _RendezvousState()
    nodes = [_NodeDesc("10.0.0.1", 7, 0), _NodeDesc("fd00::2", 8, 1), _NodeDesc("c", 9, 2)]
    made.round, made.complete, made.closed = 2, True, False
    made.deadline = datetime(2026, 11, 22, 3, tzinfo=UTC)
    made.participants = {nodes[0]: 0, nodes[1]: 1}
    made.wait_list, made.redundancy_list = {nodes[2]}, {nodes[1]}
    made.last_heartbeats = dict.fromkeys(nodes, made.deadline)
    return made


def test_a_state_survives_json() -> None:
    again = from_json(json.loads(json.dumps(to_json(state()))))
    assert vars(again) == vars(state())
    assert vars(from_json(to_json(_RendezvousState()))) == vars(_RendezvousState())


def test_the_store_holds_json_and_no_pickle(tmp_path: Path) -> None:
    store = dist.HashStore()
    inner = C10dRendezvousBackend(store, "run")
    backend = JsonBackend(inner)
    assert backend.get_state() is None
    set_first = backend.set_state(pickle.dumps(state()))
    assert set_first is not None
    assert set_first[2]
    stored = base64.b64decode(store.get("torch.rendezvous.run"))
    assert json.loads(stored) == to_json(state())
    found = backend.get_state()
    assert found is not None
    assert vars(pickle.loads(found[0])) == vars(state())  # noqa: S301
    # Another one's state in between is told, not overwritten.
    assert backend.set_state(pickle.dumps(_RendezvousState()), b"stale")[2] is False  # type: ignore[index]
    made = tmp_path / "made"
    inner.set_state(pickle.dumps(Touch(str(made))), found[1])
    with pytest.raises(RendezvousStateError, match="none of ours"):
        backend.get_state()
    assert not made.exists()
