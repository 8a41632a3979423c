"""torch's c10d rendezvous, for attempts that run once.

torch's own starts the workers over when a launcher is lost and another one comes. An attempt
ends then, because the next one has a version and pods of its own. And torch's launchers do not
mind when one of them falls silent, as when its node is lost: connections to it stay open, so the
workers would wait for half an hour. Their heartbeats tell sooner.
"""

from __future__ import annotations

from datetime import timedelta

from torch.distributed.elastic.rendezvous.api import (
    RendezvousError,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)

from embertide.launch.settings import ONCE

MISSED_HEARTBEATS = 6
"""After so many in a row a launcher counts as lost."""
_CLOSE_SECONDS = 5


class LauncherLost(RendezvousError):
    """A launcher fell silent, or was replaced by another one."""


class _Once(DynamicRendezvousHandler):
    """Torch's handler, but for what it makes of lost launchers."""

    def get_backend(self) -> str:
        """The name it is asked for by."""
        return ONCE

    def num_nodes_waiting(self) -> int:
        """Never any; torch's agent asks while its workers run.

        Raises:
            LauncherLost: where torch would start over, or wait.
        """
        waiting = super().num_nodes_waiting()
        missing = self.settings.max_nodes - len(self._state_holder.state.participants)
        if missing:
            raise LauncherLost(f"{missing} of {self.settings.max_nodes} fell silent")
        if waiting:
            raise LauncherLost("another pod came in the place of one")
        return 0


def register() -> None:
    """Make the rendezvous known to torch's elastic agents."""
    rendezvous_handler_registry.register(ONCE, _create)


def _create(params: RendezvousParameters) -> DynamicRendezvousHandler:
    backend, store = create_backend(params)
    handler: DynamicRendezvousHandler = _Once.from_backend(
        params.run_id,
        store,
        backend,
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        RendezvousTimeout(
            join=timedelta(seconds=params.get("join_seconds")),
            close=timedelta(seconds=_CLOSE_SECONDS),
        ),
        keep_alive_interval=params.get("heartbeat_seconds"),
        keep_alive_max_attempt=MISSED_HEARTBEATS,
    )
    return handler
