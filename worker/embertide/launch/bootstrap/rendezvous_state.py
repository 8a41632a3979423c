"""The state of torch's rendezvous as JSON in the store that the pods share.

torch's handler pickles it, and reads what it finds there as a pickle: anyone who can write into the
store could run code in every pod. Here a pickle never leaves the process that made it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    RendezvousBackend,
    Token,
    _NodeDesc,
    _RendezvousState,
)


class JsonBackend(RendezvousBackend):
    """A backend whose state is JSON for other processes and torch's pickle for our handler."""

    def __init__(self, inner: RendezvousBackend) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The name of the backend that keeps the state."""
        return self._inner.name

    def get_state(self) -> tuple[bytes, Token] | None:
        """See :meth:`RendezvousBackend.get_state`."""
        found = self._inner.get_state()
        return None if found is None else (_to_pickle(found[0]), found[1])

    def set_state(
        self, state: bytes, token: Token | None = None
    ) -> tuple[bytes, Token, bool] | None:
        """See :meth:`RendezvousBackend.set_state`."""
        ours: _RendezvousState = pickle.loads(state)  # noqa: S301  # our own handler's
        found = self._inner.set_state(json.dumps(to_json(ours)).encode(), token)
        return None if found is None else (_to_pickle(found[0]), *found[1:])


def to_json(state: _RendezvousState) -> dict[str, Any]:
    """Plain values: nodes as [address, process, number], times as text."""
    return {
        "round": state.round,
        "complete": state.complete,
        "closed": state.closed,
        "deadline": state.deadline and state.deadline.isoformat(),
        "participants": [[*_plain(node), rank] for node, rank in state.participants.items()],
        "wait_list": [_plain(node) for node in state.wait_list],
        "redundancy_list": [_plain(node) for node in state.redundancy_list],
        "last_heartbeats": [
            [*_plain(node), at.isoformat()] for node, at in state.last_heartbeats.items()
        ],
    }


def from_json(data: Any) -> _RendezvousState:
    """What :meth:`to_json` made.

    Raises:
        TypeError, KeyError, ValueError: it was not that.
    """
    state = _RendezvousState()
    state.round, state.complete = int(data["round"]), bool(data["complete"])
    state.closed = bool(data["closed"])
    if data["deadline"] is not None:
        state.deadline = datetime.fromisoformat(data["deadline"])
    state.participants = {_node(node): int(rank) for *node, rank in data["participants"]}
    state.wait_list = set(map(_node, data["wait_list"]))
    state.redundancy_list = set(map(_node, data["redundancy_list"]))
    state.last_heartbeats = {
        _node(node): datetime.fromisoformat(at) for *node, at in data["last_heartbeats"]
    }
    return state


def _to_pickle(text: bytes) -> bytes:
    try:
        return pickle.dumps(from_json(json.loads(text)))
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise RendezvousStateError(f"the state in the store is none of ours: {error}") from error


def _plain(node: _NodeDesc) -> list[Any]:
    return [node.addr, node.pid, node.local_id]


def _node(values: Iterable[Any]) -> _NodeDesc:
    address, process, number = values
    return _NodeDesc(str(address), int(process), int(number))
